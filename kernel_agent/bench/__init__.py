"""The client of the measuring server."""
