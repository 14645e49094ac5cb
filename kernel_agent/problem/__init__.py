"""What somebody hands in becomes a problem: one source with a module and the inputs that it is called with."""
