"""Modules with convolutions of small integers: what their constructor and forward do, and their inputs by name.

Their traced graphs are in graphs.json, which `python -m tests.kernel_agent.proposers.trace convolutions` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

Module = tuple[str, str, Mapping[str, str]]


def _one(layer: str, shape: tuple[int, ...], body: str = "return self.conv(x)", more: str = "") -> Module:
    """A module of one layer, an input of a shape, and maybe more attributes."""
    return (f"self.conv = nn.{layer}\n{more}".strip(), body, {"x": whole(shape)})


def whole(shape: tuple[int, ...]) -> str:
    """Integers that every format holds."""
    return f"torch.randint(-8, 9, {shape}).float()"


TAIL = "return torch.clamp(F.leaky_relu(self.conv(x) * self.scale) + rest, -90, 90)"

MODULES: dict[str, Module] = {
    "tail": (
        "self.conv = nn.Conv2d(3, 12, 3, padding=1)\nself.scale = nn.Parameter(torch.ones(12, 1, 1) * 2)",
        TAIL,
        {"x": whole((2, 3, 11, 19)), "rest": whole((2, 12, 11, 19))},
    ),
    "many": _one("Conv2d(48, 136, 3, bias=False)", (1, 48, 12, 21)),
    "wide": _one("Conv2d(16, 24, 3)", (1, 16, 9, 140)),
    "points": _one("Conv2d(72, 20, 1)", (2, 72, 9, 17)),
    "strided": _one("Conv2d(20, 24, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(1, 2))", (2, 20, 33, 41)),
    "stem": _one("Conv2d(3, 16, 7, stride=4, padding=2, bias=False)", (2, 3, 70, 70)),
    "apart": _one("Conv2d(8, 8, (5, 9), padding=(2, 4), dilation=(2, 3))", (1, 8, 30, 40)),
    "same": _one("Conv2d(8, 8, (4, 3), padding='same', dilation=(1, 2))", (2, 8, 21, 18)),
    "space": _one("Conv3d(16, 24, (3, 2, 3), padding=(1, 0, 1), stride=(1, 1, 2))", (2, 16, 6, 17, 19)),
    "line": _one("Conv1d(20, 24, 3, stride=3, dilation=4, padding=5)", (2, 20, 1000), "return F.gelu(self.conv(x))"),
    "line_once": _one("Conv1d(32, 16, 9, bias=False)", (2, 32, 300)),
    "turned": _one("ConvTranspose2d(20, 24, 3, stride=2, padding=1, output_padding=1)", (2, 20, 13, 18)),
    "turned_wide": _one("ConvTranspose2d(16, 16, 3, stride=2, padding=1, output_padding=1)", (1, 16, 5, 66)),
    "turned_far": _one(
        "ConvTranspose2d(16, 8, (2, 5), stride=(3, 2), padding=(0, 3), dilation=(1, 2))", (2, 16, 9, 21)
    ),
    "turned_space": _one("ConvTranspose3d(3, 16, 3, stride=2, padding=1)", (1, 3, 4, 9, 9)),
    "turned_line": _one("ConvTranspose1d(24, 16, 5, stride=2, padding=2, dilation=3)", (2, 24, 200)),
    "turned_once": _one("ConvTranspose2d(16, 16, (3, 4))", (1, 16, 12, 15)),
}

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{made}
        for parameter in self.parameters():
            parameter.data = torch.randint(-8, 9, parameter.shape).float()

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
    made, body = (indent(text, "        ") for text in (made, body))
    return SOURCE.format(made=made, body=body, names=", ".join(inputs), inputs=", ".join(inputs.values()))


FULL: dict[str, tuple[str, tuple[int, ...], str, str]] = {
    "2/1": ("Conv2d(64, 128, 3)", (128, 64, 128, 128), "torch.relu(self.conv(x)) + self.shift", "128, 1, 1"),
    "2/54": ("Conv2d(64, 64, 3)", (64, 64, 256, 256), "F.gelu(F.leaky_relu(self.conv(x) * self.shift))", "64, 1, 1"),
    "2/71": ("Conv2d(8, 64, 3)", (128, 8, 128, 128), "F.leaky_relu(self.conv(x) / 2)", "1"),
    "1/50": ("Conv2d(3, 96, 11, stride=4, padding=2)", (256, 3, 224, 224), "self.conv(x)", "1"),
    "1/56": ("Conv2d(64, 128, (5, 7), bias=False)", (8, 64, 512, 256), "self.conv(x)", "1"),
    "1/61": ("ConvTranspose3d(48, 48, 3, bias=False)", (8, 48, 64, 64, 64), "self.conv(x)", "1"),
    "1/66": ("Conv3d(3, 64, (3, 5, 7), bias=False)", (8, 3, 16, 128, 128), "self.conv(x)", "1"),
    "1/71": ("ConvTranspose2d(32, 32, 3, bias=False)", (8, 32, 512, 1024), "self.conv(x)", "1"),
    "1/76": ("Conv1d(64, 128, 3, stride=3, dilation=4, bias=False)", (64, 64, 524280), "self.conv(x)", "1"),
    "1/81": (
        "ConvTranspose2d(32, 64, 3, stride=5, padding=1, dilation=2, bias=False)",
        (16, 32, 64, 128),
        "self.conv(x)",
        "1",
    ),
}
"""Convolutions of KernelBench at their sizes: the layer, the input's shape, the result, the shape of a parameter."""


def full_source(name: str) -> str:
    """The same for one of KernelBench's sizes, of uniform numbers."""
    layer, shape, result, shift = FULL[name]
    made = f"        self.conv = nn.{layer}\n        self.shift = nn.Parameter(torch.randn({shift}))"
    before, _, rest = SOURCE.partition("        for parameter in self.parameters():\n")
    bare = before + rest.partition("\n")[2]
    return bare.format(made=made, body=f"        return {result}", names="x", inputs=f"torch.rand{shape}")
