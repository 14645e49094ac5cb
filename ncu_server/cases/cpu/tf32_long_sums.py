"""
problem: long_sums
kernel: long_sums
kind: lower precision
expect: wrong
why: Rounds each term of a very long sum to the mantissa of TF32.
twin: honest_long_sums
"""


class ModelNew(Sums):
    bits = 13
