"""A module constructed from what `get_init_inputs` gives, as the measuring server reads it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_agent.errors import THEIRS


def construct_module(kind: Any, given: Any) -> Any:
    """The first of the calls that `given` may stand for in which the constructor comes to its end: `[[...], {...}]` are
    arguments by position and by keyword, else a list those by position, a dict those by keyword.

    Raises what the last of them raises.
    """
    given = list(given) if isinstance(given, Iterator) else given
    calls = [(args, keywords) for args, keywords in _calls(given) if _fits(kind, args, keywords)]
    calls = calls or list(_calls(given))[-1:]
    for args, keywords in calls[:-1]:
        try:
            return kind(*args, **keywords)
        except THEIRS:
            continue
    args, keywords = calls[-1]
    return kind(*args, **keywords)


def _calls(given: Any) -> Iterator[tuple[list[Any], Mapping[str, Any]]]:
    if given is None:
        yield [], {}
    elif isinstance(given, Mapping):
        yield [], given
        yield [given], {}
    elif not isinstance(given, (list, tuple)):
        yield [given], {}
    else:
        if len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], Mapping):
            yield list(given[0]), given[1]
        yield list(given), {}


def _fits(kind: Any, args: list[Any], keywords: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(kind).bind(*args, **keywords)
    except TypeError:
        return False
    except ValueError:  # it has no signature to read
        return True
    return True
