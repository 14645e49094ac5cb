"""A dict of a tuple, a list, a None and a tensor without dimensions."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {"pair": (x * 2, None), "list": [x[0] + 1], "sum": x.sum()}


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
