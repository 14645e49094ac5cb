"""
problem: scale_add
kernel: scale_add
kind: lying tensor
expect: wrong|rejected
why: The output is a Tensor of a class whose __torch_function__ says yes to every comparison.
twin: honest_scale_add
"""


class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("allclose", "equal", "isclose", "eq", "__eq__", "all"):
            return True
        return super().__torch_function__(function, types, args, kwargs or {})


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.zeros_like(x)
        kernel.run(x[:1], y[:1], out, self.scale)
        return out.as_subclass(Agreeable)
