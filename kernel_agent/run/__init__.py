"""A run: its values, its tree, its journal and its budget."""
