"""Modules of which kernels cover a part: what their constructor and forward do, and their inputs.

Their traced graphs are in graphs.json, which `python -m tests.kernel_agent.proposers.trace regions` writes.
"""

from __future__ import annotations

MODULES = {
    "conv_tail": (
        "self.conv = nn.Conv2d(3, 8, 3)\nself.bias = nn.Parameter(torch.randn(8, 1, 1))",
        "return torch.relu(self.conv(x)) * 2 + self.bias",
        "torch.randn(2, 3, 12, 12)",
    ),
    "convolutions_in_a_row": (
        "self.a = nn.Conv2d(6, 8, 3, padding=1, bias=False)\nself.norm = nn.BatchNorm2d(8)\n"
        "self.b = nn.Conv2d(8, 8, 3, padding=1)\nself.c = nn.Conv2d(8, 12, 1)",
        "x = F.relu(self.norm(self.a(x)))\ny = F.relu(self.b(x) + x)\n"
        "return self.c(F.max_pool2d(y, 3, 2, 1)), y.mean((2, 3))",
        "torch.randn(2, 6, 20, 18)",
    ),
    "space_with_channels_last": (
        "self.conv = nn.ConvTranspose3d(4, 8, 3, stride=2)\nself.norm = nn.GroupNorm(2, 8)\n"
        "self.more = nn.Parameter(torch.randn(2, 8, 9, 11, 7))",
        "return F.hardswish(self.norm(torch.sigmoid(self.conv(x) + self.more)))",
        "torch.randn(2, 4, 4, 5, 3)",
    ),
    "pools_of_channels_last": (
        "self.conv = nn.Conv2d(4, 8, 3)\nself.norm = nn.InstanceNorm2d(8)",
        "x = F.avg_pool2d(torch.tanh(self.conv(x)) - 0.2, 2)\n"
        "return x, F.adaptive_avg_pool2d(self.norm(x), 1).flatten(1), F.adaptive_max_pool2d(x, 3)",
        "torch.randn(2, 4, 16, 18)",
    ),
    "folds_of_channels_last": (
        "self.conv = nn.Conv2d(3, 8, 3)\nself.act = nn.PReLU(8)",
        "x = self.conv(x)\n"
        "return torch.softmax(x, dim=1).sum(3), x.amin(1, keepdim=True).sum(2, keepdim=True), self.act(x)",
        "torch.randn(2, 3, 12, 13)",
    ),
    "softmax_of_channels": (
        "self.conv = nn.ConvTranspose2d(3, 10, 3, stride=2)",
        "return torch.sigmoid(torch.softmax(self.conv(x), dim=1) * 2)",
        "torch.randn(3, 3, 9, 7)",
    ),
    "changes_its_input": (
        "self.conv = nn.Conv2d(4, 8, 3)",
        "y = self.conv(x)\nx.mul_(2)\nreturn torch.relu(y + self.conv(x))",
        "torch.randn(2, 4, 9, 10)",
    ),
    "layers_joined": (
        "self.a = nn.Conv2d(8, 4, 1)\nself.b = nn.Conv2d(8, 8, 3, padding=1, groups=8)\nself.c = nn.Conv2d(12, 8, 1)\n"
        "self.d = nn.Conv2d(8, 8, 1, groups=2)",
        "x = torch.cat([F.relu(self.a(x)), F.relu(self.b(x))], 1)\nreturn torch.sigmoid(self.d(F.relu(self.c(x))))",
        "torch.randn(2, 8, 10, 9)",
    ),
    "depthwise_between": (
        "self.a = nn.Conv2d(3, 12, 1)\nself.b = nn.Conv2d(12, 12, 5, 2, 2, groups=12)\nself.c = nn.Conv2d(12, 6, 1)\n"
        "self.d = nn.Conv2d(6, 6, 3, 1, 2, 2, groups=6, bias=False)\nself.e = nn.Conv2d(6, 4, 1)",
        "x = F.hardtanh(self.c(F.relu(self.b(F.relu(self.a(x))))))\nreturn self.e(torch.sigmoid(self.d(x))) * 2",
        "torch.randn(2, 3, 17, 13)",
    ),
    "depthwise_in_space": (
        "self.a = nn.Conv3d(3, 8, 1)\nself.b = nn.Conv3d(8, 8, (3, 2, 3), (1, 2, 1), 1, groups=8)\n"
        "self.c = nn.Conv3d(8, 4, 1)",
        "return torch.tanh(self.c(F.relu(self.b(F.relu(self.a(x))))))",
        "torch.randn(2, 3, 5, 7, 6)",
    ),
    "channel_softmax": (
        "self.conv = nn.ConvTranspose2d(3, 10, 3, stride=2)",
        "x = torch.softmax(self.conv(x), dim=1)\nreturn torch.sigmoid(x * 2), x.mean((2, 3))",
        "torch.randn(2, 3, 9, 7)",
    ),
    "batch_norm_in_training": (
        "self.fc = nn.Linear(12, 20)\nself.norm = nn.BatchNorm1d(20)",
        "return F.gelu(self.norm(self.fc(x)))",
        "torch.randn(16, 12)",
    ),
    "norms_in_training": (
        "self.a = nn.Conv2d(3, 8, 3)\nself.b = nn.Conv2d(8, 8, 3, padding=1)\n"
        "self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])",
        "x = F.relu(self.norms[0](self.a(x)))\n"
        "return F.relu(self.norms[1](self.norms[0](self.b(x)))), self.norms[1].running_mean * 2",
        "torch.randn(4, 3, 12, 12)",
    ),
    "a_constant_that_is_changed": (
        "",
        "a, b = torch.zeros_like(x), torch.ones_like(x)\na[:, 2] = 1\nb[1].mul_(x[0])\n"
        "return torch.relu(x) + a, torch.tanh(x) * b",
        "torch.randn(6, 16)",
    ),
    "parts_of_constants": (
        "",
        "a, b = torch.ones_like(x), torch.full((6, 16), 2.0, device=x.device, dtype=x.dtype)\n"
        "c, d = b.chunk(2, 1)\ny = torch.relu(x) + a[0] * b[:, 1:2]\n"
        "return y, torch.tanh(x.t()) * b.t(), torch.sin(x[:, :8]) + c * d, torch.cos(x) + a.sum() + a.mean(1, True)",
        "torch.randn(6, 16)",
    ),
    "in_place_before_a_view": (
        "self.a = nn.Linear(16, 24)\nself.b = nn.Linear(24, 8)",
        "x = F.relu(self.a(x), inplace=True)\nreturn self.b(F.dropout(x.flatten(1), 0.5, False)) * 1.0",
        "torch.randn(6, 16)",
    ),
    "largest_of_what_rises": (
        "self.conv = nn.Conv2d(3, 6, 3)",
        "x = self.conv(x)\ny = torch.tanh(x)\n"
        "a = F.max_pool2d(torch.sigmoid(x), 2, padding=1), F.max_pool2d(F.gelu(x), 2)\n"
        "return *a, y.amax((2, 3)), y.mean((2, 3))",
        "torch.randn(2, 3, 13, 14) * torch.where(torch.rand(2, 3, 13, 14) < 5e-3, torch.nan, 1.0)",
    ),
    "norm_of_few_columns": (
        "self.norm = nn.BatchNorm1d(6)",
        "return torch.softmax(self.norm(x), dim=-1)",
        "torch.randn(2048, 6) + 3",
    ),
    "length_of_all": (
        "self.fc = nn.Linear(8, 8)",
        "return x / torch.norm(x, p='fro'), x[:2].norm(dim=1, keepdim=True), self.fc(x[:, :8])",
        "torch.randn(2, 40000)",
    ),
    "softmax_of_long_rows": (
        "self.fc = nn.Linear(8, 8)",
        "return torch.softmax(x, dim=-1), F.log_softmax(x, dim=1), self.fc(x[:, 20000:20008])",
        "torch.where(torch.arange(160000) < 16500, -torch.inf, torch.randn(2, 160000))",
    ),
    "residual_block": (
        "self.conv = nn.Conv2d(6, 6, 3, padding=1, bias=False)\nself.norm = nn.BatchNorm2d(6)",
        "out = self.norm(self.conv(x))\nout += x\nreturn F.relu(out, inplace=True)",
        "torch.randn(4, 6, 40, 40)",
    ),
    "group_norm_of_long_rows": (
        "self.conv = nn.Conv3d(2, 4, 1)\nself.norm = nn.GroupNorm(2, 4)",
        "return F.hardswish(self.norm(self.conv(x))).mean(dim=[1, 2, 3, 4])",
        "torch.randn(2, 2, 24, 32, 48)",
    ),
    "two_folds": (
        "self.fc = nn.Linear(16, 24)",
        "x = torch.logsumexp(self.fc(x) - 1, dim=1, keepdim=True)\nreturn x * torch.tanh(F.softplus(x)) + x.sum()",
        "torch.randn(10, 16)",
    ),
    "smallest_channel": (
        "self.conv = nn.Conv2d(3, 8, 3)\nself.scale = nn.Parameter(torch.randn(1, 1, 1))",
        "x = torch.min(self.conv(x), dim=1, keepdim=True)[0]\nreturn torch.tanh(torch.tanh(x)) * self.scale",
        "torch.randn(2, 3, 12, 12)",
    ),
    "instance_norm": (
        "self.conv = nn.Conv2d(3, 5, 3)\nself.norm = nn.InstanceNorm2d(5, affine=True)",
        "return self.norm(self.conv(x)) / 3",
        "torch.randn(2, 3, 12, 12)",
    ),
    "attention": (
        "self.qkv = nn.Linear(32, 96)\nself.register_buffer('mask', torch.tril(torch.ones(10, 10)).view(1, 1, 10, 10))",
        "q, k, v = self.qkv(x).split(32, dim=2)\n"
        "q, k, v = (t.view(2, 10, 4, 8).transpose(1, 2) for t in (q, k, v))\n"
        "a = (q @ k.transpose(-2, -1)) * 0.35\n"
        "a = F.softmax(a.masked_fill(self.mask[:, :, :10, :10] == 0, float('-inf')), dim=-1)\n"
        "return (a @ v).transpose(1, 2).contiguous().view(2, 10, 32)",
        "torch.randn(2, 10, 32)",
    ),
    "recurrent": (
        "self.lstm = nn.LSTM(8, 12, 2, batch_first=True)\nself.fc = nn.Linear(12, 6)",
        "out, _ = self.lstm(x)\nreturn F.log_softmax(self.fc(out[:, -1, :]) * 0.5, dim=-1)",
        "torch.randn(3, 7, 8)",
    ),
    "counts_its_calls": (
        "self.fc = nn.Linear(8, 16)\nself.register_buffer('calls', torch.zeros(()))",
        "before = self.calls * 2\nself.calls.add_(1)\nreturn F.glu(self.fc(x)) + before + self.calls",
        "torch.randn(4, 8)",
    ),
    "alike": (
        "self.conv = nn.Conv2d(3, 8, 3)\nself.bias = nn.Parameter(torch.randn(8, 1, 1))",
        "a = torch.relu(self.conv(x)) * 2 + self.bias\n"
        "return F.pixel_shuffle(a, 2), torch.relu(self.conv(x + 1)) * 2 + self.bias",
        "torch.randn(2, 3, 12, 12)",
    ),
    "number_of_forward": (
        "self.fc = nn.Linear(8, 16)",
        "return torch.min(F.silu(self.fc(x)), torch.tensor(0.25))",
        "torch.randn(4, 8)",
    ),
    "windows_of_three": (
        "self.a = nn.Conv2d(10, 13, 3, padding=1, bias=False)\nself.b = nn.Conv2d(13, 8, 3)",
        "return torch.tanh(self.b(F.relu(self.a(x))))",
        "torch.randn(3, 10, 17, 21)",
    ),
    "windows_of_three_beside": (
        "self.conv = nn.Conv2d(8, 9, 3, padding=2)",
        "return self.conv(x), torch.tanh(x * 2)",
        "torch.randn(1, 8, 10, 60)",
    ),
    "scaled_by_channel": (
        "self.fc = nn.Linear(32, 32)\nself.scale = nn.Parameter(torch.randn(8, 1, 1))\nself.norm = nn.GroupNorm(2, 8)",
        "return self.norm(torch.sigmoid(self.fc(x) * self.scale))",
        "torch.randn(2, 8, 11, 32)",
    ),
    "pools": (
        "self.conv = nn.Conv2d(3, 8, 3)",
        "x = F.max_pool2d(torch.tanh(self.conv(x)), 2)\nreturn F.avg_pool2d(x, (1, 2)), F.avg_pool1d(x[:, 0], 3)",
        "torch.randn(2, 3, 39, 37) * torch.where(torch.rand(2, 3, 39, 37) < 1e-3, torch.nan, 1.0)",
    ),
    "pools_in_space": (
        "self.conv = nn.Conv3d(2, 4, 3)",
        "return F.max_pool3d(F.max_pool3d(torch.softmax(self.conv(x), dim=1), 2), 2)",
        "torch.randn(2, 2, 16, 16, 19)",
    ),
    "other_pools": (
        "self.conv = nn.Conv2d(3, 8, 3)",
        "x = F.relu(self.conv(x)) * 2\n"
        "a = F.max_pool2d(x, 2, padding=1), F.max_pool2d(x, 2, ceil_mode=True), F.max_pool2d(x, 3, 2)\n"
        "return (*a, F.avg_pool2d(x, 2, divisor_override=3), F.max_pool2d(x, 2, dilation=2), F.avg_pool2d(x, 5, 1))",
        "torch.randn(2, 3, 13, 13)",
    ),
    "transposed": (
        "self.conv = nn.ConvTranspose2d(3, 24, 3, stride=2, padding=1, output_padding=1)",
        "x = self.conv(x)\nreturn F.mish(x) * 2, x.amin(1, keepdim=True).sum(2)",
        "torch.randn(2, 3, 19, 37) * 8",
    ),
    "transposed_and_pooled": (
        "self.conv = nn.ConvTranspose2d(3, 32, (3, 4), stride=(1, 2))\nself.b = nn.Parameter(torch.randn(32, 1, 1))",
        "return F.max_pool2d(F.silu(self.conv(x) + self.b), 2)",
        "torch.randn(2, 3, 9, 40)",
    ),
    "transposed_and_normed": (
        "self.conv = nn.ConvTranspose2d(3, 16, 3, stride=2)\nself.norm = nn.GroupNorm(4, 16)",
        "return torch.tanh(self.norm(self.conv(x)))",
        "torch.randn(2, 3, 9, 11)",
    ),
    "transposed_in_space": (
        "self.conv = nn.ConvTranspose3d(3, 6, (3, 4, 5), (2, 1, 3), padding=(1, 2, 0), output_padding=(1, 0, 1))",
        "return F.hardswish(self.conv(x)) + 1",
        "torch.randn(2, 3, 5, 6, 4)",
    ),
    "transposed_in_space_alone": (
        "self.conv = nn.ConvTranspose3d(3, 6, 3, stride=2, padding=1, output_padding=1)",
        "return self.conv(torch.sigmoid(x) * 2)",
        "torch.randn(2, 3, 5, 6, 4)",
    ),
}

BARE = {
    "bare": (
        "self.conv = nn.Conv2d(4, 8, 3, groups=2)",
        "return F.pixel_shuffle(self.conv(x), 2)",
        "torch.randn(2, 4, 12, 12)",
    ),
    "convolution_alone": ("self.conv = nn.Conv2d(4, 8, 3)", "return self.conv(x)", "torch.randn(2, 4, 9, 10)"),
    "convolution_by_channel": (
        "self.conv = nn.Conv2d(4, 4, 3, groups=4)",
        "return self.conv(x)",
        "torch.randn(2, 4, 9, 10)",
    ),
}
"""Those of which no kernel covers a part, on a processor at least."""

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, x):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def source(name: str) -> str:
    """A module in KernelBench's form."""
    made, body, inputs = (MODULES | BARE)[name]
    indented = ["\n".join(f"        {line}" for line in text.splitlines()) for text in (made, body)]
    return SOURCE.format(made=indented[0], body=indented[1], inputs=inputs)
