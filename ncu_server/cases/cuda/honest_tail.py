"""
problem: long_product
kernel: cuda_scale_add
kind: library beside kernels
expect: passed
strict: rejected
why: The product stays torch's, as in the reference; the kernel does all that follows it, in far less than 5 % of a call.
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8192, 256)

    def forward(self, x, y):
        out = torch.empty_like(y)
        kernel.run(self.fc(x).detach(), y, out, 2.0)
        return out
