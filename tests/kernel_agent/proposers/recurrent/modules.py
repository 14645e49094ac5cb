"""Modules with recurrent networks: what their constructor and forward do, and their inputs by name.

Their traced graphs are in graphs.json, which `python -m tests.kernel_agent.proposers.trace recurrent` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

Module = tuple[str, str, Mapping[str, str]]

ALL = "out, (h, c) = self.net(x)\nreturn out, h, c"
GIVEN = {"h0": "torch.randn({0})", "c0": "torch.randn({0})"}


def _given(states: str, cell: bool = True) -> dict[str, str]:
    """Initial states of a shape."""
    return {name: text.format(states) for name, text in GIVEN.items() if cell or name == "h0"}


MODULES: dict[str, Module] = {
    "lstm": ("self.net = nn.LSTM(6, 10, 2)", ALL, {"x": "torch.randn(5, 3, 6)"}),
    "lstm_given": (
        "self.net = nn.LSTM(6, 10, 3, batch_first=True)",
        "return self.net(x, (h0, c0))[1][1]",
        {"x": "torch.randn(3, 5, 6)", **_given("3, 3, 10")},
    ),
    "gru": (
        "self.net = nn.GRU(5, 9, 2, batch_first=True)",
        "out, h = self.net(x, h0)\nreturn out, h",
        {"x": "torch.randn(2, 4, 5)", **_given("2, 2, 9", cell=False)},
    ),
    "both": (
        "self.net = nn.LSTM(7, 6, 2, batch_first=True, bidirectional=True)",
        "out, (h, c) = self.net(x, (h0, c0))\nreturn out, h, c",
        {"x": "torch.randn(3, 4, 7)", **_given("4, 3, 6")},
    ),
    "gru_both": (
        "self.net = nn.GRU(8, 8, 3, bias=False, bidirectional=True)",
        "return self.net(x)[1]",
        {"x": "torch.randn(3, 2, 8)"},
    ),
    "once": ("self.net = nn.LSTM(4, 8)", ALL, {"x": "torch.randn(1, 2, 4)"}),
    "wide": ("self.net = nn.GRU(45, 12)", "return self.net(x)[0]", {"x": "torch.randn(4, 29, 45)"}),
    "last": (
        "self.net = nn.LSTM(6, 8, 2, batch_first=True)\nself.fc = nn.Linear(8, 3)",
        "out, _ = self.net(x)\nreturn torch.relu(self.fc(out[:, -1, :]))",
        {"x": "torch.randn(3, 4, 6)"},
    ),
    "spoiled": (
        "self.net = nn.LSTM(6, 10, 2, batch_first=True)",
        ALL,
        {"x": "spoiled(torch.randn(4, 5, 6))"},
    ),
    "gru_spoiled": (
        "self.net = nn.GRU(6, 10, 2, batch_first=True, bidirectional=True)",
        "out, h = self.net(x)\nreturn out, h",
        {"x": "spoiled(torch.randn(4, 5, 6))"},
    ),
}

SOURCE = """import torch
import torch.nn as nn


def spoiled(x):
    x[1, 0, 3], x[2, 2, 0] = float("inf"), -float("inf")
    x.view(torch.int32)[0, 1, 2] = -1  # a NaN of nothing but ones
    return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, {arguments}):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

# As large as KernelBench's 3/35 to 3/42: 512 steps of 10 rows through six layers of 256.
_SIZES = "128, 256, 6"
FULL: dict[str, Module] = {
    "lstm": (
        f"self.net = nn.LSTM({_SIZES}, batch_first=True)\nself.fc = nn.Linear(256, 10)",
        "out, _ = self.net(x, (h0, c0))\nreturn self.fc(out[:, -1, :])",
        {"x": "torch.rand(10, 512, 128)", **_given("6, 10, 256")},
    ),
    "lstm_both": (
        f"self.net = nn.LSTM({_SIZES}, batch_first=True, bidirectional=True)\nself.fc = nn.Linear(512, 10)",
        "out, _ = self.net(x, (h0, c0))\nreturn self.fc(out[:, -1, :])",
        {"x": "torch.rand(10, 512, 128)", **_given("12, 10, 256")},
    ),
    "gru": (
        f"self.net = nn.GRU({_SIZES})",
        "return self.net(x, h0)[0]",
        {"x": "torch.rand(512, 10, 128)", **_given("6, 10, 256", cell=False)},
    ),
    "gru_both": (
        f"self.net = nn.GRU({_SIZES}, bidirectional=True)",
        "return self.net(x, h0)[1]",
        {"x": "torch.rand(512, 10, 128)", **_given("12, 10, 256", cell=False)},
    ),
}


def source(name: str) -> str:
    """The problem's source."""
    return _source(MODULES[name])


def full_source(name: str) -> str:
    """The same of a large one."""
    return _source(FULL[name])


def _source(module: Module) -> str:
    made, body, inputs = module
    return SOURCE.format(
        made=indent(made, " " * 8),
        arguments=", ".join(inputs),
        body=indent(body, " " * 8),
        inputs=", ".join(inputs.values()),
    )
