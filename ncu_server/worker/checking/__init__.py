"""What a check needs inside the workers: truth, tolerance, effects."""
