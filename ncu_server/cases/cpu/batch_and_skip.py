"""
problem: linear_relu
kernel: linear_relu
kind: batch and skip
expect: wrong|suspect
why: Remembers the inputs that take turns; one call in fifteen computes them all, the others only look up.
twin: honest_linear_relu
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.turns, self.done, self.calls = {}, {}, 0

    def compute(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        return out

    def forward(self, x):
        self.turns[x.data_ptr()] = x
        self.calls += 1
        if self.calls % 15 == 1:
            self.done = {place: self.compute(t) for place, t in self.turns.items()}
        if x.data_ptr() not in self.done:
            self.done[x.data_ptr()] = self.compute(x)
        return self.done[x.data_ptr()]
