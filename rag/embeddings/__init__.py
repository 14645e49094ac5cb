"""Embedding models: in a process of ours, or behind an OpenAI-compatible endpoint."""
