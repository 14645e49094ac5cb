"""
problem: rows_twice
kernel: nothing
kind: decoy
expect: rejected|passed
strict: rejected
why: torch copies all of it and a kernel does nothing; a second model cannot be made, so that no run without the
    kernel can tell. Under the default rules that is hybrid.
twin: honest_rows_twice
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        if hasattr(torch.nn, "made"):
            raise RuntimeError("there is one already")
        torch.nn.made = True

    def forward(self, x):
        out = torch.empty(2 * x.shape[0], x.shape[1])
        out.view(-1, 2, x.shape[1]).copy_(x.unsqueeze(1))
        kernel.run(out)
        return out
