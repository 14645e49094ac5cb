"""
problem: wide_convolution
kernel: cuda_convolution
kind: plain
expect: passed
why: A plain convolution in full float32, beside a reference in TF32.
"""


class ModelNew(Convolution):
    pass
