"""Compilers: candidates become libraries, CUDA becomes cubins, cubins become listings."""
