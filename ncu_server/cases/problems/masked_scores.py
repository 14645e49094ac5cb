"""Scores under a mask that get_inputs always draws as the same triangle."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, scores, mask):
        return scores * mask


def get_inputs():
    return [torch.randn(8, 256, 256), torch.ones(256, 256).tril()]


def get_init_inputs():
    return []
