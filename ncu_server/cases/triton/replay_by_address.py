"""
problem: square_matmul
kernel: triton_matmul
kind: address replay
expect: wrong|rejected
why: Answers from a table when the inputs' addresses come again.
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
            grid = (triton.cdiv(a.shape[0], 64), triton.cdiv(b.shape[1], 64))
            matmul[grid](a, b, out, a.shape[0], a.shape[1], b.shape[1], PRECISION="ieee")
            self.table[key] = out, a, b
        return self.table[key][0].clone()
