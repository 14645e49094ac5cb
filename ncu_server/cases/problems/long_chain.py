"""Many small steps that one pass can do, beside a branch that nobody reads: ten times is honest here."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        out = x
        for step in range(24):
            out = out * 0.9 + 0.1
            unread = torch.exp(torch.tanh(out)).sum()
        return out.clamp(-2.0, 2.0)


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []
