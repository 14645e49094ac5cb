"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: own graph
expect: passed
why: A CUDA graph of its own kernel that gets the inputs copied before each replay; slower, and honest.
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.graph = None

    def forward(self, x, y):
        if self.graph is None:
            self.x, self.y, self.out = x.clone(), y.clone(), torch.empty_like(x)
            kernel.run(self.x, self.y, self.out, self.scale)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                kernel.run(self.x, self.y, self.out, self.scale)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.out.clone()
