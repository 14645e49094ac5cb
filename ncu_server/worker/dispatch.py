"""The base of what watches a model's operators as they run."""

from __future__ import annotations

from ncu_server.worker import private

TorchDispatchMode = private.take("torch.utils._python_dispatch.TorchDispatchMode")


class Watch(TorchDispatchMode):  # type: ignore[misc, valid-type]
    """A mode under which nothing is compiled: torch's own answer would import the compiler first, for seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
