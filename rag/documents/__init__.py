"""Documents become pages, and pages chunks."""
