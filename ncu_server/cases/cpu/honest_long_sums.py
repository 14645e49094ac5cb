"""
problem: long_sums
kernel: long_sums
kind: long sums
expect: passed
why: A plain float32 loop over very many terms, which errs more than the pairwise sum of torch.
"""


class ModelNew(Sums):
    pass
