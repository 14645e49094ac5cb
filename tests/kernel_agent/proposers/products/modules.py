"""Modules with float32 products: what their constructor and forward do, and their inputs by name.

Their traced graphs are in graphs.json, which `python -m tests.kernel_agent.proposers.trace products` writes.
"""

from __future__ import annotations

LAYOUTS = "return a @ b, at.T @ b, a @ bt.T, at.T @ bt.T"


def _layouts(m: int, k: int, n: int) -> dict[str, str]:
    shapes = {"a": (m, k), "b": (k, n), "at": (k, m), "bt": (n, k)}
    return {name: f"torch.randn{shape}" for name, shape in shapes.items()}


MODULES: dict[str, tuple[str, str, dict[str, str]]] = {
    "odd": ("", LAYOUTS, _layouts(37, 45, 51)),
    "even": ("", LAYOUTS, _layouts(70, 46, 66)),
    "fours": ("", LAYOUTS, _layouts(132, 68, 140)),
    "whole_numbers": (
        "",
        "return a @ b, a.T @ b.T",
        {"a": "torch.randint(-8, 9, (40, 40)).float()", "b": "torch.randint(-8, 9, (40, 40)).float()"},
    ),
    "tail": (
        "self.fc = nn.Linear(70, 68)\nself.scale = nn.Parameter(torch.randn(50, 1))",
        "h = F.gelu(self.fc(x)) * self.scale\nreturn torch.clamp(h + rest, -1, 1)",
        {"x": "torch.randn(50, 70)", "rest": "torch.randn(50, 68)"},
    ),
    "stacks": (
        "self.scale = nn.Parameter(torch.randn(3, 1, 1))\nself.fc = nn.Linear(9, 12)",
        "return torch.bmm(x, y) * self.scale, torch.relu(u @ y), torch.einsum('bijl,lk->bijk', u, y[1]), "
        "self.fc(x.transpose(1, 2)), torch.addmm(z, x[0], y[0])",
        {
            "x": "torch.randn(3, 9, 20)",
            "y": "torch.randn(3, 20, 24)",
            "u": "torch.randn(2, 1, 9, 20)",
            "z": "torch.randn(24)",
        },
    ),
    "batches": (
        "self.scale = nn.Parameter(torch.randn(3, 1, 1))",
        "return torch.bmm(x, y) * self.scale, torch.relu(x @ y[1]), torch.bmm(x, x.transpose(1, 2))",
        {"x": "torch.randn(3, 140, 91)", "y": "torch.randn(3, 91, 131)"},
    ),
    "bands": (
        "",
        "return torch.triu(a @ b), torch.tril(a @ b, 3) * 2, torch.triu(a @ b, -70)",
        {"a": "torch.rand(150, 40)", "b": "torch.rand(40, 150)"},
    ),
    "scores": (
        "",
        "q, k, v = (t.view(2, 10, 4, 8).transpose(1, 2) for t in qkv.split(32, dim=2))\n"
        "return (q @ k.transpose(-2, -1)) * 0.35",
        {"qkv": "torch.randn(2, 10, 96)"},
    ),
    "gathered_heads": (
        "self.fc = nn.Linear(72, 68)",
        "return torch.relu(self.fc(heads.transpose(1, 2).contiguous().view(2, 10, 72)))",
        {"heads": "torch.randn(2, 4, 10, 18)"},
    ),
    "attended": (
        "self.drop = nn.Dropout(0.1).eval()",
        "a = self.drop(torch.softmax((q @ k.transpose(1, 2)) * 0.2, dim=-1))\nreturn a @ v",
        {"q": "torch.randn(3, 20, 24)", "k": "torch.randn(3, 20, 24)", "v": "torch.randn(3, 20, 24)"},
    ),
    "long_sums": (
        "self.bias = nn.Parameter(torch.randn(30))",
        "return F.relu(a @ b + self.bias), torch.tril(a @ b)",
        {"a": "torch.rand(34, 1000)", "b": "torch.rand(1000, 30)"},
    ),
    "summed": (
        "self.fc = nn.Linear(300, 260)\nself.minus = nn.Parameter(torch.randn(260))",
        "return (self.fc(x) / 2).sum(dim=1, keepdim=True) * 1.5, (self.fc(x) - self.minus).mean(-1), "
        "torch.sum(x @ w, dim=1), (x @ v.T).sum(1)",
        {"x": "torch.randn(9, 300)", "w": "torch.randn(300, 280)", "v": "torch.randn(270, 300)"},
    ),
    "vectors": (
        "self.fc = nn.Linear(1024, 1025)",
        "return a @ b, x @ a, torch.relu(self.fc(y)), a @ b[:, 0]",
        {
            "a": "torch.randn(1030, 1024)",
            "b": "torch.randn(1024, 1)",
            "x": "torch.randn(1, 1030)",
            "y": "torch.randn(1, 1024)",
        },
    ),
}

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, {names}):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def source(name: str) -> str:
    """A module in KernelBench's form."""
    made, body, inputs = MODULES[name]
    indented = ["\n".join(f"        {line}" for line in text.splitlines()) for text in (made, body)]
    return SOURCE.format(made=indented[0], body=indented[1], names=", ".join(inputs), inputs=", ".join(inputs.values()))
