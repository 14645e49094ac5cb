"""compute-sanitizer: a run under it, and its records as data."""
