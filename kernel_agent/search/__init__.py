"""The search: rounds of ideas, implementations of each, and parents for the next round."""
