"""
problem: square_matmul
kernel: mapped_descriptors
kind: memory scan
expect: wrong|rejected|run_error
why: Maps every descriptor of device memory that it holds, its slot for outputs too, and takes what lies there.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.zeros(a.shape[0], b.shape[1], device=a.device)
        kernel.scan(a, b, out)
        return out
