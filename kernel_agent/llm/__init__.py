"""Language models: providers, what a call costs, and what of it is recorded."""
