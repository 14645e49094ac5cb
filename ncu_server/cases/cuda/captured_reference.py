"""
problem: square_matmul
kernel: cuda_matmul
kind: wrapped reference
expect: rejected
why: A CUDA graph of torch's own product, with the inputs copied in; the kernel runs once, at the capture.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, a, b):
        if self.graph is None:
            self.a, self.b = a.clone(), b.clone()
            kernel.run(a[:32], b, torch.empty(32, b.shape[1], device=a.device))
            self.a @ self.b
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.a @ self.b
        self.a.copy_(a)
        self.b.copy_(b)
        self.graph.replay()
        return self.out.clone()
