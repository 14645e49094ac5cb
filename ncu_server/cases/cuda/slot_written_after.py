"""
problem: square_matmul
kernel: mapped_descriptors
kind: late thread
expect: wrong|rejected|suspect|run_error
why: Maps its slot for outputs again with write access; a thread computes into it when the call has returned.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.zeros(a.shape[0], b.shape[1], device=a.device)
        kernel.write_later(a, b, out)
        return out
