"""
problem: wide_convolution
kernel: cuda_convolution
kind: as narrow as torch
expect: passed
why: Operands rounded as the reference's own are, which cuDNN computes in TF32.
"""


class ModelNew(Convolution):
    bits = 13
