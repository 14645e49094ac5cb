"""
problem: convolution
kernel: convolution
kind: lower precision
expect: wrong
why: Operands rounded to bfloat16.
twin: honest_convolution
"""


class ModelNew(Convolution):
    bits = 16
