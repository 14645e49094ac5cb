"""Kernels without a model: row programs written from the corpus and evolved over their genes."""
