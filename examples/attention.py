"""Causal self-attention of several heads, written out: a position sees itself and those before it."""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim: int, heads: int, length: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(dim, dim=2)
        )
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(dim // self.heads)
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim))


def get_inputs():
    return [torch.randn(2, 512, 256)]


def get_init_inputs():
    return [256, 8, 512]
