"""Graphs of models: torch.export's, and what Inductor made."""
