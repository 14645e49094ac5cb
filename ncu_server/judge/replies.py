"""What a candidate's process says is checked for form before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

WIDEST = 16  # bytes of an element: no tensor begins elsewhere


class Malformed(Exception):  # noqa: N818
    """An answer that is none of the kind asked for."""


class TensorLayout(BaseModel):
    """Where a tensor lies in shared memory."""

    model_config = ConfigDict(strict=True)

    shape: list[int]
    dtype: str
    strides: list[int]
    offset: int = Field(ge=0, multiple_of=WIDEST)
    bytes: int = Field(ge=0)


class Spec(BaseModel):
    """A tree of tensors in shared memory; see ncu_server.worker.tensors."""

    model_config = ConfigDict(strict=True)

    structure: dict[str, Any]
    tensors: list[TensorLayout]
    bytes: int = Field(gt=0)

    @model_validator(mode="after")
    def _numbered(self) -> Spec:
        if list(_numbers(self.structure)) != list(range(len(self.tensors))):
            raise ValueError("the tree does not number its tensors")
        return self


def _numbers(structure: Any) -> Iterator[int]:
    """The numbers of the tensors in a tree, in order. Raises ValueError for what is no tree."""
    waiting = [structure]
    while waiting:
        match waiting.pop():
            case {"tensor": int(number), **rest} if not rest:
                yield number
            case {"list": [*inner], **rest} | {"tuple": [*inner], **rest} if not rest:
                waiting += reversed(inner)
            case {"dict": [*entries], **rest} if not rest and all(_keyed(entry) for entry in entries):
                waiting += [inner for _, inner in reversed(entries)]
            case {"record": [str(), str(), [*fields]], **rest} if not rest and all(_named(field) for field in fields):
                waiting += [inner for _, inner in reversed(fields)]
            case {"value": None | bool() | int() | float() | str(), **rest} | {"dtype": str(), **rest} if not rest:
                pass
            case {"complex": [int() | float(), int() | float()], **rest} if not rest:
                pass
            case _:
                raise ValueError("a part of the tree is none")


def _keyed(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], None | bool | int | float | str)


def _named(field: Any) -> bool:
    return isinstance(field, list) and len(field) == 2 and isinstance(field[0], str)


class Checked(BaseModel):
    """The answer to `check`."""

    model_config = ConfigDict(strict=True)

    seen: dict[str, Any]
    kept: bool
    fresh: bool


class Profile(BaseModel):
    """The answer to `profile`; see ncu_server.worker.authorship.profile: profiled and concealed, and opened.Opened."""

    calls: int = Field(gt=0)
    ops: dict[str, float]
    kernels: dict[str, float]
    own_us: float
    own_ops_us: float
    unordered_us: float
    outside_us: float
    own_done: int
    own_started: int
    concealed: dict[str, float] = {}
    opened: list[str] = []
    named: list[str] = []


_SHARE = TypeAdapter(float)


def checked(said: Any) -> Checked:
    """Raises Malformed."""
    try:
        found = Checked.model_validate(said)
    except ValidationError as fault:
        raise Malformed(_first(fault)) from None
    spec(found.seen)
    return found


def spec(said: Any) -> dict[str, Any]:
    """Raises Malformed."""
    try:
        return Spec.model_validate(said).model_dump()
    except ValidationError as fault:
        raise Malformed(_first(fault)) from None


def share(said: Any) -> float:
    """Raises Malformed."""
    try:
        return _SHARE.validate_python(said)
    except ValidationError as fault:
        raise Malformed(_first(fault)) from None


def profile(said: Any) -> dict[str, Any]:
    """Raises Malformed."""
    try:
        return Profile.model_validate(said).model_dump()
    except ValidationError as fault:
        raise Malformed(_first(fault)) from None


def held(said: dict[str, Any], size: int) -> None:
    """Whether memory of `size` bytes holds all that is said to lie in it. Raises Malformed."""
    ends = [place["offset"] + place["bytes"] for place in said["tensors"]]
    if max([said["bytes"], *ends]) > size:
        raise Malformed(f"{max(ends)} bytes are said to lie in {size}")


def _first(fault: ValidationError) -> str:
    error = fault.errors(include_url=False)[0]
    return f"{'.'.join(str(p) for p in error['loc'])} {error['msg']}"
