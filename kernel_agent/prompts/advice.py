"""What prompts say of an operator before anything was tried: rules in TOML, those beside the prompts and the user's.

[[rule]]
operators = "matmul|gemm|mm"     # a regular expression, searched for in each traced operator's name
targets = ["cuda", "triton"]     # all where it is left out
arithmetic = ["tf32"]            # what shows in the reference's own error; all where it is left out
advice = "Keep the accumulators in registers."
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator

from kernel_agent.errors import UsageError
from rag import text_files

OURS = Path(__file__).parent / "rules.toml"


class Advice(BaseModel):
    """Advice for operators whose name holds `operators`, on `targets`, where the reference computes in one `arithmetic`
    of these (see Description.arithmetic)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operators: re.Pattern[str]
    advice: str
    targets: tuple[str, ...] = ()
    arithmetic: tuple[str, ...] = ()

    @field_validator("operators", mode="before")
    @classmethod
    def _compiled(cls, given: object) -> object:
        try:
            return re.compile(given, re.IGNORECASE) if isinstance(given, str) else given
        except re.error as fault:
            raise ValueError(f"{given!r} is no regular expression: {fault}") from None


RULES = TypeAdapter(tuple[Advice, ...])


def rules(own: Path | None = None) -> tuple[Advice, ...]:
    """The user's rules, then ours. Raises UsageError for a file that cannot be read or holds something else."""
    return (*(_read(own) if own else ()), *_read(OURS))


def chosen(
    among: Sequence[Advice], operators: Iterable[str], target: str, arithmetic: str = "float32"
) -> tuple[str, ...]:
    """What the rules say of these operators on this target, each rule once, in their order."""
    names = tuple(operators)
    fitting = (
        rule
        for rule in among
        if (not rule.targets or target in rule.targets) and (not rule.arithmetic or arithmetic in rule.arithmetic)
    )
    return tuple(rule.advice.strip() for rule in fitting if any(map(rule.operators.search, names)))


def _read(path: Path) -> tuple[Advice, ...]:
    try:
        held = tomllib.loads(text_files.read(path))
        return RULES.validate_python(held.pop("rule", []) if set(held) <= {"rule"} else held)
    except OSError as fault:
        raise UsageError(f"The rules in {path} cannot be read: {fault.strerror}.") from None
    except text_files.NotText as fault:
        raise UsageError(f"The file of rules {path} {fault}.") from None
    except tomllib.TOMLDecodeError as fault:
        raise UsageError(f"The rules in {path} are no TOML: {fault}.") from None
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"The rules in {path} are not [[rule]] tables: {where}: {first['msg']}.") from None
