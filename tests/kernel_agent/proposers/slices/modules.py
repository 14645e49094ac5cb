"""Modules that concatenate: what their constructor and forward do, and their inputs by name.

Numbers are small integers where convolutions read them. Their traced graphs are in graphs.json, which
`python -m tests.kernel_agent.proposers.trace slices` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from tests.kernel_agent.proposers.convolutions.modules import SOURCE, whole

Module = tuple[str, str, Mapping[str, str]]

GROWN = """found = [x]
for layer in self.layers:
    joined = torch.cat(found, 1)
    peaks.append(joined.amax((2, 3)))
    found.append(F.dropout(layer(torch.clamp(joined, -2, 2)), 0.0, True))
return torch.cat(found, 1), *peaks"""

MODULES: dict[str, Module] = {
    "branches": (
        "self.a = nn.Conv2d(8, 12, 1)\nself.b = nn.Conv2d(8, 20, 3, padding=1)\nself.c = nn.Conv2d(8, 6, 1)",
        "beside = self.c(F.max_pool2d(x, 3, 1, 1))\n"
        "return torch.relu(torch.cat([F.relu(self.a(x)), torch.clamp(self.b(x), -9, 99), beside], 1)) * 2",
        {"x": whole((2, 8, 9, 13))},
    ),
    "grown": (
        "self.layers = nn.ModuleList([nn.Conv2d(n, 8, 3, padding=1, bias=False) for n in (5, 13, 21)])",
        f"peaks = []\n{GROWN}",
        {"x": whole((2, 5, 8, 10))},
    ),
    "grown_by_convolutions": (
        "self.layers = nn.ModuleList([nn.Conv2d(n, 6, 3, padding=1) for n in (5, 11, 17)])\n"
        "self.last = nn.Conv2d(6, 7, 1)",
        "found = [x]\nfor layer in self.layers:\n    found.append(torch.clamp(layer(torch.cat(found, 1)), -2, 2))\n"
        "return torch.cat(found, 1), self.last(found[1])",
        {"x": whole((2, 5, 8, 10))},
    ),
    "with_inputs": (
        "self.a = nn.Conv2d(4, 9, 3)\nself.up = nn.ConvTranspose2d(4, 7, 2, stride=2)",
        "return torch.cat([rest, F.relu(self.a(x)), rest], 1), torch.cat([self.up(x), wide], 1)",
        {"x": whole((2, 4, 9, 12)), "rest": whole((2, 3, 7, 10)), "wide": whole((2, 2, 18, 24))},
    ),
    "other_dimensions": (
        "self.a = nn.Conv2d(4, 8, 3)\nself.b = nn.Conv2d(4, 8, 3)",
        "return torch.cat([self.a(x), self.b(x) * 2]), torch.cat([self.a(y), self.b(x)], -1)",
        {"x": whole((2, 4, 7, 10)), "y": whole((2, 4, 7, 8))},
    ),
    "beside": (
        "",
        "a = torch.relu(x) * 2\nb = torch.sigmoid(y)\n"
        "return torch.cat((a, b), 1), F.max_pool2d(a, 3, 2, 1), a.mean((2, 3)), torch.tanh(b - 0.5)",
        {"x": "torch.randn(3, 5, 12, 14)", "y": "torch.randn(3, 2, 12, 14)"},
    ),
    "pooled": (
        "self.each = nn.Conv2d(4, 4, 3, padding=1, groups=4)",
        "a = F.max_pool2d(x, 3, 2, 1) * 2\nb = F.relu(self.each(F.hardtanh(x)))\n"
        "return torch.cat([F.avg_pool2d(x[:, :2], 2), a], 1), torch.cat([b, x], 1)",
        {"x": "torch.randn(3, 4, 16, 24)"},
    ),
    "rows": (
        "self.fc = nn.Linear(7, 7)",
        "a = torch.cat([torch.relu(x) + 1, self.fc(y)], -1)\n"
        "return a * 2, torch.cat([torch.exp(x).transpose(0, 1), torch.sin(x).transpose(0, 1)], 2)",
        {"x": "torch.randn(3, 6, 9)", "y": "torch.randn(3, 6, 7)"},
    ),
    "folded_rows": (
        "",
        "return torch.cat([torch.softmax(x, -1), F.layer_norm(y, (24,)), F.layer_norm(y, (2, 3, 24))], 1)",
        {"x": "torch.randn(4, 6, 3, 24)", "y": "torch.randn(4, 2, 3, 24)"},
    ),
    "nested": (
        "",
        "a = torch.cat([torch.exp(x), torch.sin(y)], 1)\nb = torch.cat([torch.relu(y), a, y], 1)\n"
        "return b, a.mean(2), torch.tanh(a), torch.cat([c := torch.cat([y, torch.exp(y)], 1), torch.cos(c), c], 1)",
        {"x": "torch.randn(4, 3, 16)", "y": "torch.randn(4, 5, 16)"},
    ),
    "twice": (
        "",
        "a = torch.exp(x)\nreturn torch.cat([a, a], 1), torch.cat([a, a], 2)",
        {"x": "torch.randn(4, 3, 16)"},
    ),
    "two_types": (
        "",
        "return torch.cat([torch.exp(x).half(), torch.sin(x)], 1)",
        {"x": "torch.randn(4, 3, 16)"},
    ),
    "returned": ("", "a = torch.exp(x)\nreturn torch.cat([a, torch.sin(x)], 1), a", {"x": "torch.randn(4, 3, 16)"}),
    "read_by_pytorch": (
        "",
        "a = torch.exp(x)\nreturn torch.cat([a, torch.sin(x)], 1), torch.sort(a, -1)[0]",
        {"x": "torch.randn(4, 3, 16)"},
    ),
    "changed": (
        "",
        "a = torch.cat([torch.exp(x), torch.sin(x)], 1)\nb = a[:, 1:4]\nb.mul_(2)\nreturn a",
        {"x": "torch.randn(4, 3, 16)"},
    ),
}


def source(name: str) -> str:
    """A module in KernelBench's form."""
    made, body, inputs = MODULES[name]
    made, body = (indent(text, "        ") for text in (made, body))
    return SOURCE.format(made=made, body=body, names=", ".join(inputs), inputs=", ".join(inputs.values()))
