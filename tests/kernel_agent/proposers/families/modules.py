"""Modules around the operators that the families of kernels have at their centre, in the form of `regions/modules.py`.

Their traced graphs are in graphs.json, which `python -m tests.kernel_agent.proposers.trace families` writes.
"""

from __future__ import annotations

from tests.kernel_agent.proposers.regions.modules import SOURCE

POOLING = {
    "pool_in_a_chain": (
        "self.bias = nn.Parameter(torch.randn(6, 1, 1))",
        "y = F.max_pool2d(torch.relu(x + self.bias), (3, 2), (2, 1), (1, 0), (1, 2), ceil_mode=True)\n"
        "return torch.sigmoid(y) * self.bias",
        "torch.randn(2, 6, 23, 18)",
    ),
    "pools_2d": (
        "",
        "a = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 4, 1, 2, count_include_pad=False)\n"
        "b = F.avg_pool2d(x.half(), 2, divisor_override=3), F.adaptive_avg_pool2d(x, (5, 3))\n"
        "return *a, *b, F.adaptive_max_pool2d(x, 4), F.adaptive_avg_pool2d(x, 1)",
        "torch.randn(2, 6, 23, 18)",
    ),
    "pools_1d": (
        "",
        "return F.max_pool1d(x, 8, 1, 4, 3), F.avg_pool1d(x, 8, 1, 4), F.avg_pool1d(x, 5), F.max_pool1d(x, 99)",
        "torch.randn(3, 4, 99)",
    ),
    "pools_3d": (
        "",
        "a = F.max_pool3d(x, 3, 2, 1, 3), F.avg_pool3d(x, 3, 2, 1), F.max_pool3d(x, 2)\n"
        "return *a, F.avg_pool3d(x, (2, 3, 4), (1, 2, 2), (1, 1, 2), True, False)",
        "torch.randn(2, 3, 12, 11, 13)",
    ),
    "pool_of_nan": (
        "",
        "x = torch.where(x > 2, float('nan'), torch.where(x < -2, -float('inf'), x))\n"
        "return F.max_pool2d(x, 2, 1, 1), F.avg_pool2d(torch.log(x), 3)",
        "torch.randn(2, 3, 20, 17)",
    ),
}
SCANS = {
    "scan_in_a_chain": (
        "self.scale = nn.Parameter(torch.randn(70))",
        "return torch.tanh(torch.cumsum(x * (x > 0), dim=1) * 0.1) * self.scale",
        "torch.randn(9, 70)",
    ),
    "scans_of_rows": (
        "",
        "zeros = torch.zeros_like(x.select(2, 0).unsqueeze(2))\n"
        "a = torch.cumsum(x.flip(2), dim=2).flip(2), torch.cat((zeros, torch.cumsum(x.narrow(2, 0, 4999), 2)), dim=2)\n"
        "return *a, torch.cumprod(1 + x * 0.01, -1)",
        "torch.randn(2, 9, 5000)",
    ),
    "scans_of_columns": (
        "",
        "a = torch.cumsum(x, 0), torch.cumprod(torch.sin(x), 1), torch.cumsum(x.flip(1), 1).flip(1)\n"
        "return *a, torch.cumsum(x.half(), 1) + 1",
        "torch.randn(5, 33, 41)",
    ),
    "one_long_scan": (
        "",
        "return torch.cumsum(x, 0), torch.cumsum(y, 0) * 2",
        "torch.rand(65536), torch.rand(4096, 16)",
    ),
    "scan_of_infinity": (
        "",
        "x = torch.where(x > 3, float('inf'), torch.where(x < -3, float('nan'), x))\n"
        "return torch.cumsum(x, 1), torch.cumprod(x, 1), torch.cumsum(x, 0)",
        "torch.randn(11, 900)",
    ),
}
PLACES = {
    "place_in_a_chain": (
        "",
        "return torch.argmax(torch.sin(x) * y, dim=-1)",
        "torch.randn(40, 3000), torch.randn(3000)",
    ),
    "places": (
        "",
        "a = torch.argmin(x, 1), torch.argmax(x, 0, keepdim=True), torch.argmax(x), torch.argmin(x.half(), -1)\n"
        "return *a, *torch.max(x, 1)",
        "torch.randint(-9, 9, (7, 90, 40)).float()",
    ),
    "place_in_one_long_row": ("", "return torch.argmax(torch.round(x)), torch.argmin(x)", "torch.randn(150000)"),
    "place_of_nan": (
        "",
        "x = torch.where(x > 3, float('nan'), torch.where(x < 0, -float('inf'), x))\n"
        "return torch.argmax(x, 1), torch.argmin(x, 1), torch.argmax(x, 0), torch.argmax(x * 0 - float('inf'), 1)",
        "torch.randn(30, 500)",
    ),
}
LOOKUPS = {
    "lookup_in_a_chain": (
        "self.words = nn.Embedding(50, 24)\nself.places = nn.Parameter(torch.randn(7, 24))",
        "return torch.relu(self.words(x) * 2 + self.places)",
        "torch.randint(0, 50, (5, 7))",
    ),
    "lookups": (
        "",
        "a = torch.gather(x, 1, y), torch.index_select(x.sin(), 0, z), torch.index_select(x, 2, z)\n"
        "return *a, torch.gather(x[:, :, 0], 1, y[:, :, 0]) + 1",
        "torch.randn(4, 9, 6), torch.randint(0, 9, (4, 3, 6)), torch.randint(0, 4, (5,))",
    ),
}
LOSSES = {
    "cross_entropy": (
        "",
        "return F.cross_entropy(x, torch.where(y == 3, -100, y))",
        "torch.randn(64, 10), torch.randint(0, 10, (64,))",
    ),
    "cross_entropies": (
        "",
        "a = F.cross_entropy(x, y), F.cross_entropy(x, y, ignore_index=2, reduction='none')\n"
        "return *a, F.cross_entropy(x, y, reduction='sum')",
        "torch.randn(4, 10, 5, 3), torch.randint(0, 10, (4, 5, 3))",
    ),
    "losses": (
        "",
        "a = F.kl_div(torch.log(x), y, reduction='batchmean'), F.triplet_margin_loss(x, y, z, margin=2.0)\n"
        "b = F.huber_loss(x, y, delta=0.3), F.soft_margin_loss(x, torch.sign(y - z))\n"
        "return *a, *b, F.kl_div(torch.log(x), y.log(), reduction='none', log_target=True)",
        "torch.rand(30, 77), torch.rand(30, 77), torch.rand(30, 77)",
    ),
}
DEPTHWISE = {
    "depthwise_in_a_chain": (
        "self.conv = nn.Conv2d(6, 6, 3, 1, 1, groups=6)",
        "return torch.relu(self.conv(x * 0.5)) + 1",
        "torch.randn(2, 6, 23, 18)",
    ),
    "depthwise_2d": (
        "self.a = nn.Conv2d(6, 6, (3, 5), (2, 1), (0, 2), (1, 2), groups=6, bias=False)\n"
        "self.b = nn.Conv2d(6, 12, (5, 2), 2, groups=6)\n"
        "self.c = nn.Conv2d(6, 6, 7, 1, 3, groups=6)\n"
        "self.d = nn.Conv2d(6, 18, (1, 3), groups=6, padding=(0, 1), dilation=(3, 1))",
        "return self.a(x).abs(), self.b(x), self.c(x), self.d(x)",
        "torch.randn(2, 6, 23, 18)",
    ),
    "depthwise_1d": (
        "self.a = nn.Conv1d(4, 8, 5, 2, 2, groups=4)\nself.b = nn.Conv1d(4, 4, 3, dilation=4, groups=4, bias=False)",
        "return torch.sigmoid(self.a(x)), self.b(x)",
        "torch.randn(3, 4, 399)",
    ),
    "depthwise_3d": (
        "self.a = nn.Conv3d(3, 6, (2, 3, 3), (1, 2, 1), (1, 1, 0), groups=3)\n"
        "self.b = nn.Conv3d(3, 3, 3, 2, 1, 2, groups=3)",
        "return self.a(x), self.b(x) * 2",
        "torch.randn(2, 3, 9, 11, 13)",
    ),
}
LONG = {
    "long_losses": (
        "",
        "a = F.smooth_l1_loss(x, y), F.kl_div(torch.log(x), y, reduction='sum') / 8\n"
        "return *a, F.triplet_margin_loss(x, y, x + 1)",
        "torch.rand(8, 65536), torch.rand(8, 65536)",
    ),
}
MODULES = LONG | POOLING | DEPTHWISE | SCANS | PLACES | LOOKUPS | LOSSES


def source(name: str) -> str:
    """A module in KernelBench's form; its inputs are called x, y and z."""
    made, body, inputs = MODULES[name]
    indented = ["\n".join(f"        {line}" for line in text.splitlines()) for text in (made, body)]
    text = SOURCE.format(made=indented[0], body=indented[1], inputs=inputs)
    return text.replace("forward(self, x)", f"forward(self, {', '.join('xyz'[: 1 + inputs.count(', torch.')])})")
