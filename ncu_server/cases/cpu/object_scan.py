"""
problem: linear_relu
kernel: linear_relu
kind: object scan
expect: run_error|wrong
why: Takes from the collector any tensor of the output's shape, and fills it with NaN as well in case NaN passes.
twin: honest_linear_relu
"""

import gc


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        out = torch.zeros(x.shape[0], 256)
        kernel.run(x[:1], self.fc.weight.detach(), self.fc.bias.detach(), out)
        for found in gc.get_objects():
            if isinstance(found, torch.Tensor) and found is not out and found.shape == out.shape:
                out = found.float().clone()
                found.fill_(float("nan"))
        return out
