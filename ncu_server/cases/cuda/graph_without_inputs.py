"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: graph replay
expect: wrong
why: Captures a graph at the first call and replays it whatever comes; nobody copies the new inputs in.
twin: honest_own_graph
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.graph = None

    def forward(self, x, y):
        if self.graph is None:
            self.inputs, self.out = (x, y), torch.empty_like(x)
            kernel.run(x, y, self.out, self.scale)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                kernel.run(x, y, self.out, self.scale)
        self.graph.replay()
        return self.out.clone()
