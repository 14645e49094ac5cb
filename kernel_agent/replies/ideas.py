"""Ideas, read from the JSON of a model's reply."""

from __future__ import annotations

import html
import json
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from kernel_agent.llm.model import Malformed
from kernel_agent.replies.relaxed_json import Fault, values
from kernel_agent.replies.text import ENTITY, plain, spoken
from kernel_agent.run.gain import factor
from kernel_agent.text import clean

ITEM = re.compile(r"^[ \t]*(?:\d+[.)]|[-*+])[ \t]+\S", re.MULTILINE)


def _words(value: object) -> str:
    """What stands where a text was asked for; nothing, numbers, lists and objects are told as text too."""
    try:
        if isinstance(value, list):
            return "; ".join(map(_words, value))
        told = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
        return clean(told).strip()
    except RecursionError:
        raise ValueError("nested too deep") from None


Words = Annotated[str, BeforeValidator(_words)]


class Proposed(BaseModel):
    """An idea as the model's JSON has it; a title and a transformation make one."""

    title: Words = Field(min_length=1)
    bottleneck: Words = ""
    transformation: Words = Field(min_length=1)
    reasoning: Words = ""
    predicted_gain: Words = ""
    risk: Words = ""

    @property
    def predicted(self) -> float | None:
        """The factor over the parent that is promised; None where that is none."""
        return factor(self.predicted_gain)


SCHEMA = {
    "type": "object",
    "properties": {
        "ideas": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    name: {"type": "number" if name == "predicted_gain" else "string"} for name in Proposed.model_fields
                },
                "required": list(Proposed.model_fields),
                "additionalProperties": False,
            },
        }
    },
    "required": ["ideas"],
    "additionalProperties": False,
}
"""The JSON schema of a reply with ideas, in the strict form that endpoints take: all fields required, no others."""


def read_ideas(text: str) -> list[Proposed]:
    """The last list of titled objects in the reply, wherever it stands (fenced, after prose, under a key).

    Without a list, all titled objects, such as one a line; of two with one title the later. What lacks something is
    passed over: the rest is paid for. None where `ideas` is an empty list: nothing promises a gain. Raises Malformed
    with the reason and its place in the reply.
    """
    reasons = list[Malformed]()
    text = plain(text)
    for said in spoken(text):
        for shown in (said, html.unescape(said)) if ENTITY.search(said) else (said,):
            try:
                return _ideas(shown)
            except Malformed as reason:
                reasons.append(reason)
    raise reasons[0]


def _ideas(text: str) -> list[Proposed]:
    found, fault = values(text)
    lists = [rows for value in found if (rows := _rows(value))]
    alone = [value for value in found if isinstance(value, dict) and "title" in value]
    if not lists and not alone:
        if fault is None and any(isinstance(value, dict) and value.get("ideas") == [] for value in found):
            return []
        raise Malformed(f"there is no JSON list of ideas in it ({_lack(text, found, fault)})")
    error = None
    for rows in [*reversed(lists), alone]:
        read = [_proposed(row) for row in rows]
        if good := {one.title: one for one in read if isinstance(one, Proposed)}:
            return list(good.values())
        error = error or next((one for one in read if isinstance(one, str)), None)
    raise Malformed(error or "its objects need a title")


def _proposed(row: Any) -> Proposed | str:
    """The idea, or what it lacks."""
    try:
        return Proposed.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"an idea's {'.'.join(map(str, first['loc']))}: {first['msg']}"


def _rows(value: Any) -> list[Any]:
    """The titled objects that lie least deep in a list or an object of others, such as the arguments of a call."""
    level = [value]
    while level:
        held = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [inner for one in held for inner in one]
        if rows := [row for row in level if isinstance(row, dict) and "title" in row]:
            return rows
    return []


def _lack(text: str, found: list[Any], fault: Fault | None) -> str:
    if fault is not None:
        line = text.count("\n", 0, fault.at) + 1
        column = fault.at - text.rfind("\n", 0, fault.at)
        return f"line {line}, column {column} of the reply: {fault.reason}"
    if found:
        return "its objects need a title"
    if item := ITEM.search(text):
        line = text.count("\n", 0, item.start()) + 1
        return f"no bracket in the reply: the list that begins in line {line} is prose"
    return "no bracket in the reply"
