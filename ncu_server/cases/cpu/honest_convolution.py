"""
problem: convolution
kernel: convolution
kind: plain
expect: passed
why: A plain convolution in float32.
"""


class ModelNew(Convolution):
    pass
