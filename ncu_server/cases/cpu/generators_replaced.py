"""
problem: scale_add
kernel: scale_add
kind: generator patch
expect: wrong
why: Makes torch draw zeros, and leaves out what is then added.
twin: honest_scale_add
"""

for name in ("randn", "rand", "randn_like", "rand_like"):
    setattr(torch, name, lambda *size, **more: torch.zeros(*size))
torch.set_default_dtype(torch.bfloat16)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, torch.zeros_like(x), out, self.scale)
        return out
