"""
problem: scale_add
kernel: scale_add
kind: crash
expect: run_error|timeout
why: Asks for memory until there is none, and touches all of it.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.kept = []

    def forward(self, x, y):
        while True:
            self.kept.append(torch.ones(64 << 20))
