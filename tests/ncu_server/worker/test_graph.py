"""What is traced of a module."""

import torch

from ncu_server.worker.tracing.graph import graph


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            mean = x.mean(-1, keepdim=True)
        return torch.relu(x - mean)


def test_a_block_without_gradients_is_traced_like_any_other() -> None:
    traced = graph(Model(), ([torch.randn(4, 8)], {}))
    assert traced["operators"] == ["aten.mean.dim", "aten.sub.Tensor", "aten.relu.default"]
