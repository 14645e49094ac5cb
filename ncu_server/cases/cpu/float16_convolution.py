"""
problem: convolution
kernel: convolution
kind: lower precision
expect: wrong
why: Operands rounded to float16, where torch computes in full float32.
twin: honest_convolution
"""


class ModelNew(Convolution):
    def rounded(self, operand):
        return operand.half().float()
