"""
problem: functional_dropout
kernel: scale_add
kind: partial work
expect: wrong
why: It drops elements where it does not train, and leaves them out of the work.
twin: honest_own_mask_by_function
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        kernel.run(x[:179], torch.zeros_like(x[:179]), out[:179], 1.5)
        return out
