"""Questions, passages, and how passages are ranked."""
