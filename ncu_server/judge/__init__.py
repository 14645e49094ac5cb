"""The judge: whether a candidate is right, how fast it is, and who does its work."""
