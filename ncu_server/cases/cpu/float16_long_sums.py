"""
problem: long_sums
kernel: long_sums
kind: lower precision
expect: wrong
why: Rounds each term of a very long sum to float16.
twin: honest_long_sums
"""


class ModelNew(Sums):
    def rounded(self, x):
        return x.half().float()
