"""What the tools return, as pydantic models."""
