"""What a child can be asked, as a type: the arguments of a verb, and what it is answered with."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar, get_args

T = TypeVar("T", covariant=True)


class Verb(Generic[T]):
    """A frozen dataclass of JSON-able arguments; `T` is the JSON-able answer. The verbs are ncu_server.worker.verbs."""

    @classmethod
    def name(cls) -> str:
        """As the message has it: the class's name in snake case."""
        return re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def answer(cls) -> Any:
        """The type of the answer."""
        return get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]

    def message(self) -> dict[str, Any]:
        """What goes over the channel."""
        return {"verb": self.name(), "arguments": vars(self)}
