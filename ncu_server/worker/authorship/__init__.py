"""What the candidate's own process shows of who does its work."""
