"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: crash
expect: run_error
why: Takes the device's memory until there is none, and keeps it.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.kept = []

    def forward(self, x, y):
        while True:
            self.kept.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))
