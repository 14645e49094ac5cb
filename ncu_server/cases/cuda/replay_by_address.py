"""
problem: square_matmul
kernel: cuda_matmul
kind: address replay
expect: wrong|rejected
why: Keeps the inputs alive, and answers from a table when their addresses come again.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = {}

    def forward(self, a, b):
        key = a.data_ptr(), b.data_ptr()
        if key not in self.table:
            out = torch.empty(a.shape[0], b.shape[1], device=a.device)
            kernel.run(a, b, out)
            self.table[key] = out, a, b
        return self.table[key][0].clone()
