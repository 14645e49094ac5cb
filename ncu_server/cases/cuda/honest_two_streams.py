"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: streams joined
expect: passed
why: Half of the rows on a stream of its own, which waits for the caller's and is waited for.
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.side = None

    def forward(self, x, y):
        self.side = self.side or torch.cuda.Stream()
        main, half, out = torch.cuda.current_stream(), x.shape[0] // 2, torch.empty_like(x)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            kernel.run(x[half:], y[half:], out[half:], self.scale)
        kernel.run(x[:half], y[:half], out[:half], self.scale)
        main.wait_stream(self.side)
        for tensor in (x, y, out):
            tensor.record_stream(self.side)
        return out
