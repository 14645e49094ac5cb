"""
problem: linear_relu
kernel: linear_relu
kind: reading the reference
expect: rejected|build_error
why: The whole module is the reference under another name, beside a kernel that nobody calls.
twin: honest_linear_relu
"""

from problem import Model


class ModelNew(Model):
    pass
