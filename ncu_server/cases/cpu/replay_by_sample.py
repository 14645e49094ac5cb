"""
problem: linear_relu
kernel: linear_relu
kind: fingerprint replay
expect: wrong|rejected
why: A hash of the corners and the middle stands for the whole input, so a change elsewhere goes unnoticed.
twin: honest_linear_relu
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.known = {}

    def forward(self, x):
        key = (x.shape, x[0, 0].item(), x[-1, -1].item(), x[x.shape[0] // 2, 7].item())
        if key not in self.known:
            out = torch.empty(x.shape[0], 256)
            kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
            self.known[key] = out
        return self.known[key].clone()
