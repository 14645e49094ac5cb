"""What is known beside a run: the library's passages, and the experience of earlier runs."""
