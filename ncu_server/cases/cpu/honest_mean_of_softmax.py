"""
problem: mean_of_softmax
kernel: softmax
kind: plain
expect: passed
why: Does the exponentials, the sum and the mean, although the answer could be guessed.
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out.mean(dim=1)
