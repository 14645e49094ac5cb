"""
problem: convolution
kernel: convolution
kind: lower precision
expect: wrong
why: Operands rounded to the mantissa of TF32, where torch computes in full float32.
twin: honest_convolution
"""


class ModelNew(Convolution):
    bits = 13
