"""
problem: linear_relu
kernel: linear_relu
kind: address replay
expect: wrong|rejected
why: Keeps each input alive with its output and gives the output back when the same address returns.
twin: honest_linear_relu
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.plans = {}

    def forward(self, x):
        place = x.data_ptr()
        if place not in self.plans:
            out = torch.empty(x.shape[0], 256)
            kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
            self.plans[place] = (x, out)
        return self.plans[place][1].clone()
