"""Objects with named parts: dataclasses, named tuples, and plain ones whose attributes are data."""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
import sys
import types
from argparse import Namespace
from typing import Any

OURS = ("candidate", "problem")
"""Modules that are loaded here: what is called the same in both is one kind of thing, the first one's where it goes."""

Parts = list[tuple[str, Any]]

_DICT, _QUALNAME = type.__dict__["__dict__"], type.__dict__["__qualname__"]


def parts(node: Any) -> tuple[str, Parts] | None:
    """The form of a record (namedtuple, dataclass, enum, object) and its parts in order; None for anything else.

    Nothing of the object's own code runs: parts are what is stored. Raises TypeError where that is not all.
    """
    kind = type(node)
    if issubclass(kind, tuple):
        fields = _of_class(kind, "_fields")
        return ("namedtuple", list(zip(fields, tuple.__iter__(node), strict=True))) if _are_names(fields) else None
    if issubclass(type(fields := _of_class(kind, "__dataclass_fields__")), dict):
        return "dataclass", [(name, _stored(node, name)) for name in dict.keys(fields)]
    if issubclass(kind, enum.Enum):
        return "enum", [("name", _stored(node, "_name_"))]
    plain = kind in (types.SimpleNamespace, Namespace) or _of_class(kind, "__module__") in OURS
    if not plain or issubclass(kind, type | BaseException | list | dict) or _of_class(kind, "__call__"):
        return None
    return "object", list((_class_values(kind) | dict(dict.items(_dictionary(node)))).items())


def label(kind: type) -> str:
    """The name of a class with the module that it is found in; what is loaded here has no module."""
    name, home = _QUALNAME.__get__(kind), _of_class(kind, "__module__")
    return str(name) if home in OURS else f"{home}:{name}"


def make(form: str, label: str, fields: Parts) -> Any:
    """A record of a class that is loaded here, or of a stand-in with the same name and parts."""
    kind, names, short = _class(label), [name for name, _ in fields], re.split(r"[.:]", label)[-1]
    if form == "enum":
        return kind[str(fields[0][1])] if kind is not None and issubclass(kind, enum.Enum) else fields[0][1]
    if form == "namedtuple":
        fits = kind is not None and issubclass(kind, tuple) and list(getattr(kind, "_fields", ())) == names
        own = kind if kind is not None and fits else collections.namedtuple(short, names)
        return tuple.__new__(own, (value for _, value in fields))
    if kind is None and form == "object":
        return types.SimpleNamespace(**dict(fields))
    kind = kind or dataclasses.make_dataclass(short, names)
    if issubclass(kind, dict):  # its items are made of the fields
        return kind(**dict(fields))
    record = object.__new__(kind)
    for name, value in fields:
        object.__setattr__(record, name, value)
    return record


def _class(label: str) -> type | None:
    home, _, name = label.rpartition(":")
    for module in (home,) if home else OURS:
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
    return None


def _of_class(kind: type, name: str) -> Any:
    """What a class or one that it derives from holds under a name, as it is."""
    spaces = (_DICT.__get__(one) for one in type.mro(kind))
    return next((space[name] for space in spaces if name in space), None)


def _are_names(fields: Any) -> bool:
    return type(fields) is tuple and all(type(name) is str for name in fields)


def _stored(node: Any, name: str) -> Any:
    """The value that lies in the object. Raises TypeError where it would have to be computed, or is not there."""
    described = _of_class(type(node), name)
    if isinstance(described, types.MemberDescriptorType):
        return described.__get__(node)
    if _of_class(type(described), "__set__"):
        raise TypeError(f"`{name}` of a {type(node).__name__} is computed when it is looked at")
    own = _dictionary(node)
    if not dict.__contains__(own, name):
        raise TypeError(f"a {type(node).__name__} has no `{name}`")
    return dict.__getitem__(own, name)


def _dictionary(node: Any) -> dict[str, Any]:
    """The dictionary in which an object keeps its attributes."""
    found = _of_class(type(node), "__dict__")
    return found.__get__(node) if isinstance(found, types.GetSetDescriptorType | types.MemberDescriptorType) else {}


def _class_values(kind: type) -> dict[str, Any]:
    """The plain values that our classes hold for their objects, as configurations do."""
    found: dict[str, Any] = {}
    for one in reversed(type.mro(kind)):
        if _DICT.__get__(one).get("__module__") in OURS:
            items = _DICT.__get__(one).items()
            found |= {
                name: value for name, value in items if name[:2] != "__" and _of_class(type(value), "__get__") is None
            }
    return {name: value for name, value in found.items() if not issubclass(type(value), type)}
