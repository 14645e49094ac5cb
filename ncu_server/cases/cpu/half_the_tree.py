"""
problem: containers
kernel: scale_add
kind: shape lies
expect: wrong
why: Leaves out what a zip of two sequences would not miss.
twin: honest_containers
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, x, out, 1.0)
        return {"pair": (out,), "list": []}
