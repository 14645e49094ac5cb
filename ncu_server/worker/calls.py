"""How what a problem's functions give is handed over: by position and by keyword, as the signature takes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Call = tuple[list[Any], dict[str, Any]]
"""Arguments by position and by keyword."""

LISTS, DICTS = ("list", "tuple", "sequence", "iterable"), ("dict", "mapping")


def readings(function: Callable[..., Any], given: Any) -> list[Call]:
    """The calls that `given` may stand for, the likeliest first; those that the signature takes, if it takes any.

    A list is the arguments by position, a dict those by keyword, `[[...], {...}]` both; anything else is one argument.
    """
    signature = signature_of(function)
    found = [call for call in _readings(given, signature) if _fits(signature, call)]
    return found or list(_readings(given, None))[-1:]


def called(model: Callable[..., Any], call: Call) -> Any:
    """What a call gives."""
    args, kwargs = call
    return model(*args, **kwargs)


def _readings(given: Any, signature: inspect.Signature | None) -> Iterator[Call]:
    """The last one is what is plainly there."""
    if given is None:
        yield [], {}
    elif _is_keyed(given):
        yield [], dict(given)
        yield [given], {}
    elif not isinstance(given, list | tuple) or hasattr(given, "_fields"):
        yield [given], {}
    else:
        plain: Call = list(given), {}
        split: list[Call] = []
        if len(given) == 2 and isinstance(given[0], list | tuple) and _is_keyed(given[1]):
            split = [(list(given[0]), dict(given[1]))]
        if split and signature and _takes_both(signature, given[1]):
            yield plain
            yield from split
            return
        yield from split
        if split and signature and given[1] and given[1].keys() <= signature.parameters.keys():
            return
        if signature and not split and given and _is_keyed(given[-1]) and not _fits(signature, plain):
            yield list(given[:-1]), dict(given[-1])
        yield plain


def _is_keyed(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """None for what has none to read, as some that are no Python."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _fits(signature: inspect.Signature | None, call: Call) -> bool:
    if signature is None:
        return True
    try:
        signature.bind(*call[0], **call[1])
    except TypeError:
        return False
    return True


def _takes_both(signature: inspect.Signature, keywords: Mapping[str, Any]) -> bool:
    """Whether annotations or defaults say that a list and a dict are the arguments themselves; keywords that are names
    of parameters say that they are not."""
    parameters = list(signature.parameters.values())[:2]
    if len(parameters) < 2 or (keywords and keywords.keys() <= signature.parameters.keys()):
        return False
    said = [_is_said(one, kinds) for one, kinds in zip(parameters, (LISTS, DICTS), strict=True)]
    return any(said) and False not in said


def _is_said(parameter: inspect.Parameter, kinds: tuple[str, ...]) -> bool | None:
    """Whether a parameter is said to be of such a kind; None where nothing is said."""
    if parameter.annotation not in (parameter.empty, Any, "Any"):
        return any(kind in str(parameter.annotation).lower() for kind in kinds)
    if parameter.default is parameter.empty or parameter.default is None:
        return None
    return type(parameter.default).__name__ in kinds
