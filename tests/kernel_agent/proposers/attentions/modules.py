"""Modules with attention: what their constructor and forward do, and their inputs by name.

Their traced graphs are in graphs.json, which `python -m tests.kernel_agent.proposers.trace attentions` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

Module = tuple[str, str, Mapping[str, str]]

PACKED = """q, k, v = x.split({wide}, dim=2)
B, T, C = q.shape
q, k, v = (one.view(B, T, {heads}, C // {heads}).transpose(1, 2) for one in (q, k, v))
att = (q @ k.transpose(-2, -1)) * (C // {heads}) ** -0.5
att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
y = F.dropout(F.softmax(att, dim=-1), 0.0) @ v
return y.transpose(1, 2).contiguous().view(B, T, C)"""
TRIANGLE = 'self.register_buffer("bias", torch.tril(torch.ones({0}, {0})).view(1, 1, {0}, {0}))'
EXPLICIT = "return F.softmax(q @ k.transpose(-2, -1) * 0.2{mask}, -1) @ v"
DIRECT = "return F.scaled_dot_product_attention(q, k, v{more})"


def _three(q: tuple[int, ...], keys: int, values: int = 0, more: str = "") -> dict[str, str]:
    """Queries of a shape, and as many heads of keys and values."""
    *heads, _, terms = q
    shapes = q, (*heads, keys, terms), (*heads, keys, values or terms)
    return {name: f"torch.randn{shape}{more}" for name, shape in zip("qkv", shapes, strict=True)}


def _hidden(fill: str, hidden: str) -> Module:
    """Scores that a mask hides, with a row of them alone."""
    body = f"att = q @ k.transpose(-2, -1) / 4\nreturn torch.softmax(att.masked_fill(self.hidden, {fill}), -1) @ v"
    made = f"hidden = {hidden}\nhidden[70] = True\nself.register_buffer('hidden', hidden)"
    return made, body, _three((1, 2, 96, 16), 100)


def _odd(name: str) -> Module:
    """Numbers that are none among queries, keys or values, and later keys hidden."""
    body = "return F.softmax((q @ k.transpose(-2, -1)).masked_fill(self.bias == 0, float('-inf')), -1) @ v"
    given = _three((1, 2, 160, 16), 160)
    return "self.register_buffer('bias', torch.ones(160, 160).tril())", body, {**given, name: f"odd({given[name]})"}


def _short(dtype: str) -> Module:
    """Attention of 16 bits, with a mask that is added."""
    body = f"q, k, v, mask = (one.to(torch.{dtype}) for one in (q, k, v, mask))\n"
    body += "return (torch.softmax(q @ k.transpose(-2, -1) / 4 + mask, -1) @ v).float()"
    return "", body, {**_three((1, 2, 100, 40), 150), "mask": "torch.randn(100, 150)"}


RANDOM = "torch.arange(96).view(-1, 1) * 7919 % 11 > torch.arange(100) * 104729 % 13"

MODULES: dict[str, Module] = {
    "packed": (TRIANGLE.format(200), PACKED.format(wide=48, heads=2), {"x": "torch.randn(2, 150, 144)"}),
    "plain": ("", EXPLICIT.format(mask=""), _three((1, 2, 130, 64), 100)),
    "sequence_first": (
        "",
        "q, k, v = (one.contiguous().view(90, 6, 32).transpose(0, 1) for one in x.unbind(0))\n"
        "weights = F.softmax(torch.bmm(q * 0.25, k.transpose(1, 2)), dim=-1)\n"
        "y = torch.bmm(weights, v).transpose(0, 1).reshape(180, 96)\n"
        "weights.mean(0)\n"
        "return y",
        {"x": "torch.randn(3, 90, 2, 96)"},
    ),
    "causal": ("", DIRECT.format(more=", is_causal=True"), _three((2, 1, 150, 32), 200)),
    "causal_short": ("", DIRECT.format(more=", is_causal=True, scale=0.3"), _three((1, 2, 200, 96), 70)),
    "added": (
        "",
        DIRECT.format(more=", mask"),
        {
            **_three((2, 2, 70, 40), 90, 20),
            "mask": "torch.where(torch.rand(2, 1, 70, 90) < 0.3, float('-inf'), torch.randn(2, 1, 70, 90))",
        },
    ),
    "slopes": (
        "self.register_buffer('slopes', torch.arange(150.0).expand(140, 150).tril() * -0.1)",
        EXPLICIT.format(mask=" + self.slopes"),
        _three((2, 140, 48), 150),
    ),
    "kept": (
        f"kept = {RANDOM}\nkept[70] = False\nkept[:, 64:] = False\nself.register_buffer('kept', kept)",
        DIRECT.format(more=", self.kept"),
        _three((1, 2, 96, 16), 100),
    ),
    "hidden": _hidden('float("-inf")', RANDOM),
    "hidden_far": _hidden("-1e9", RANDOM),
    "lowest": _hidden("torch.finfo(torch.float32).min", RANDOM),
    "letters": (
        "",
        "att = torch.einsum('bqhd,bkhd->bhqk', q, k).div(5)\n"
        "return torch.einsum('bhqk,bkhd->bqhd', att.softmax(-1), v)",
        {name: f"torch.randn(1, {n}, 2, 24)" for name, n in (("q", 80), ("k", 70), ("v", 70))},
    ),
    "beside": (
        "",
        "return torch.bmm(torch.softmax(torch.baddbmm(mask, q, k.transpose(1, 2)), -1), v)",
        {**_three((2, 70, 16), 80), "mask": "torch.randn(2, 1, 80)"},
    ),
    "widest": ("", DIRECT.format(more=""), _three((1, 1, 70, 128), 130)),
    "uneven": ("", DIRECT.format(more=""), _three((1, 1, 30, 17), 33, 23)),
    "large": ("", DIRECT.format(more=", scale=1.0"), _three((1, 1, 64, 64), 300, more=" * 8")),
    "padding": (
        "self.register_buffer('padding', torch.arange(160).expand(70, 160) > 120)",
        "return F.softmax((q @ k.transpose(-2, -1)).masked_fill(self.padding, float('-inf')), -1) @ v",
        {**_three((1, 2, 70, 16), 160), "v": "odd(torch.randn(1, 2, 160, 16), 130, 140)"},
    ),
    "far_apart": (
        "",
        EXPLICIT.format(mask=""),
        {
            "q": "torch.randn(1, 2, 70, 1).mul(1e30).expand(1, 2, 70, 16) * torch.eye(16)[0]",
            "k": "torch.randn(1, 2, 80, 1).mul(1e20).expand(1, 2, 80, 16) * torch.eye(16)[1]",
            "v": "torch.randn(1, 2, 80, 16)",
        },
    ),
    **{dtype: _short(dtype) for dtype in ("float16", "bfloat16")},
    **{f"odd_{'qkv'.index(name) + 1}": _odd(name) for name in "qkv"},
}

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F


def odd(x, first=5, second=40):
    \"\"\"The same with numbers that are none.\"\"\"
    x[0, 1, first, 2], x[0, 1, second, 3], x[0, 1, 150, 7] = (float(what) for what in ("nan", "inf", "-inf"))
    return x


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
    made, body, inputs = MODULES.get(name) or FULL[name]
    made, body = (indent(text, "        ") for text in (made, body))
    return SOURCE.format(made=made, body=body, names=", ".join(inputs), inputs=", ".join(inputs.values()))


FULL: dict[str, Module] = {
    "3/31": ("", EXPLICIT.format(mask=""), dict.fromkeys("qkv", "torch.rand(8, 16384, 32)")),
    "3/44": (TRIANGLE.format(1024), PACKED.format(wide=768, heads=8), {"x": "torch.rand(128, 512, 2304)"}),
    "64": ("", DIRECT.format(more=", is_causal=True"), _three((16, 16, 2048, 64), 2048)),
    "128": ("", DIRECT.format(more=""), _three((8, 16, 1024, 128), 1024)),
}
"""Attention of KernelBench at its sizes, and of other widths."""
