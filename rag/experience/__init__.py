"""What earlier runs measured, and how it is found again."""
