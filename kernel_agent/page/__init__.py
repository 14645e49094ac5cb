"""The page of a run: what is known of it as one value, and that as HTML that needs nothing else."""
