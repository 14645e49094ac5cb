"""Who proposes ideas and writes kernels: a model, or templates."""
