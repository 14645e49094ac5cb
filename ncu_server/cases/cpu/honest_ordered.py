"""
problem: ordered
kernel: ordered
kind: integers
expect: passed
why: Each call computes, whether or not its input has come before.
"""


class ModelNew(nn.Module):
    def forward(self, at):
        out = torch.empty(at.shape)
        kernel.run(at, out, False)
        return out
