"""
problem: wide_convolution
kernel: cuda_convolution
kind: lower precision
expect: wrong
why: Operands scaled to the range of fp8, and rounded to it, beside a reference in TF32.
twin: honest_convolution
"""


class ModelNew(Convolution):
    def rounded(self, operand):
        scale = 448 / operand.abs().max()
        return (operand * scale).to(torch.float8_e4m3fn).float() / scale
