"""
problem: wide_convolution
kernel: cuda_convolution
kind: as narrow as torch
expect: passed
why: Operands rounded to float16, which has the mantissa of the TF32 that cuDNN takes.
"""


class ModelNew(Convolution):
    def rounded(self, operand):
        return operand.half().float()
