"""
problem: wide_convolution
kernel: cuda_convolution
kind: lower precision
expect: wrong
why: Operands rounded to bfloat16 err 8 times as much as TF32, 4 times of which are allowed.
twin: honest_convolution
"""


class ModelNew(Convolution):
    bits = 16
