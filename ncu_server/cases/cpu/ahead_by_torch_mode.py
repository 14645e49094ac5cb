"""
problem: linear_relu
kernel: linear_relu
kind: lying tensor
expect: wrong
why: A torch mode that stays on computes when the input is made, before the clock starts.
twin: honest_linear_relu
"""

from torch.overrides import TorchFunctionMode

PLAIN = kernel.run
known, ahead = {}, {}


class Ahead(TorchFunctionMode):
    """Computes as soon as the input has been given its new values, which comes before the clock starts."""

    model = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        done = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "copy_" and args:
            x = known.get(args[0].untyped_storage().data_ptr())
            if x is not None:
                with torch._C.DisableTorchFunction():
                    self.n = getattr(self, "n", 0) + 1
                    # the first copy takes the last change back, the second makes the next one: both come in one go
                    self.late = x
                    if self.n % 2 == 0:
                        ahead[id(x)] = self.model.compute(x)
        return done


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.seen = {}
        self.mode = None

    def compute(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        return out

    def forward(self, x):
        at = x.untyped_storage().data_ptr()
        self.seen[at] = self.seen.get(at, 0) + 1
        if self.mode is None and self.seen[at] > 3:
            self.mode = Ahead()
            self.mode.model = self
            self.mode.__enter__()
        if self.seen[at] > 3:
            known[at] = x
        out = ahead.pop(id(x), None)
        if out is not None:
            n = 0
            for i in range(2500):
                n += i
            return out
        return self.compute(x)
