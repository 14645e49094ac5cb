"""
problem: scale_add
kernel: scale_add
kind: lying tensor
expect: wrong|rejected
why: The output computes itself at the first operation on it, which comes after the clock has stopped.
twin: honest_scale_add
"""


class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, work, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

    def __init__(self, work, shape):
        self.work = work

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*[a.work() if isinstance(a, Lazy) else a for a in args], **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        def work():
            out = torch.empty_like(x)
            kernel.run(x, y, out, self.scale)
            return out

        return Lazy(work, x.shape)
