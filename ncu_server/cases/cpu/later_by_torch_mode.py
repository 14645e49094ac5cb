"""
problem: linear_relu
kernel: linear_relu
kind: lying tensor
expect: wrong
why: A torch mode that stays on computes when the output is cloned, past the clock.
twin: honest_linear_relu
"""

from torch.overrides import TorchFunctionMode

due = {}


class Later(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if due and getattr(func, "__name__", "") in (
            "detach",
            "clone",
            "data_ptr",
            "contiguous",
            "untyped_storage",
            "is_contiguous",
        ):
            work = due.pop("work", None)
            if work and args and args[0] is work[0]:
                kernel.run(*work[1], work[0])
        return func(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.mode = None

    def forward(self, x):
        due.clear()
        weight, bias = self.fc.weight.detach(), self.fc.bias.detach()
        out = torch.empty(x.shape[0], 256)
        if self.mode is None:
            self.mode = Later()
            self.mode.__enter__()
        due["work"] = (out, (x, weight, bias))
        n = 0
        for i in range(2000):
            n += i
        return out
