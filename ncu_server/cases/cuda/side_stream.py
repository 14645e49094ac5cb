"""
problem: square_matmul
kernel: cuda_matmul
kind: side stream
expect: wrong|suspect
why: Launches on a stream that neither waits for the caller's nor is waited for; events on the caller's see nothing.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        with torch.cuda.stream(self.side):
            kernel.run(a, b, out)
        return out
