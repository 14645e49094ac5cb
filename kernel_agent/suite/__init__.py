"""Suites: many problems over one pool under one budget, and the table that comes of them."""
