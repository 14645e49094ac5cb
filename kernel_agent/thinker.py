"""The proposer that asks a model: ideas as JSON, kernels as fenced Python, repairs from the judge's log."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from kernel_agent import place as places
from kernel_agent import prompts
from kernel_agent.errors import UsageError
from kernel_agent.excerpt import excerpt, shortened
from kernel_agent.llm import Malformed, Model, NotRecorded, Role, Talk
from kernel_agent.prompts.facts import facts, outcomes
from kernel_agent.types import PARTS, Brief, Evaluation, Idea, Problem, Status, Trial, digest

LANGUAGES = {"cpu": "C++", "cuda": "CUDA C++", "triton": "Triton"}
MEANINGS = {
    Status.REJECTED: "The source breaks the rules; it was not run.",
    Status.BUILD_ERROR: "It does not compile or import.",
    Status.RUN_ERROR: "It raised or crashed: suspect bounds, alignment, launch configuration, shared memory.",
    Status.TIMEOUT: "It did not finish in time: suspect a loop without end, or a barrier not reached by all.",
    Status.WRONG: "Its outputs differ: suspect indexing, tails, missing barriers, a wrong reduction, lost precision.",
    Status.SUSPECT: "Its time or outputs cannot be believed: suspect skipped work, or work left running.",
    Status.PASSED: "It is correct.",
}
REPAIRS = {
    Status.BUILD_ERROR: "repair_build",
    Status.RUN_ERROR: "repair_run",
    Status.TIMEOUT: "repair_run",
    Status.WRONG: "repair_wrong",
    Status.SUSPECT: "repair_rules",
    Status.REJECTED: "repair_rules",
}
FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*(\w*).*")
LABEL = re.compile(rf"^(?=(?:{'|'.join(PARTS)}): )", re.MULTILINE)
"""Where a line within a part would begin another one."""

DIAGNOSIS = 2000
"""Characters of a helper's answer that are passed on."""

IDEA = 4000
"""Characters of each part of an idea that are passed on."""

BRACKETS = 1000
"""Places of a reply where its JSON may begin: a bound on the time that a hostile reply can take."""


class Thinker:
    """A `Proposer` on a model. Every method raises ProviderError when the model cannot be used, Unusable its replies.

    With a `helper`, that role says what is wrong with a failed kernel before it is mended; with `escalation`, that role
    gets the last try at one.
    """

    def __init__(self, model: Model, helper: bool = False, escalation: bool = False) -> None:
        self.model, self.helper, self.escalation = model, helper, escalation

    async def ideas(self, brief: Brief, count: int) -> list[Idea]:
        """At most `count` new ideas for the parent; fewer where the model repeats what was tried."""
        tried = {_plain(outcome.title) for outcome in (*brief.siblings, *brief.lessons)}
        if brief.parent_idea:
            tried.add(_plain(brief.parent_idea.title))
        talk, place = _talk(brief, "ideas", count=count, idea_limit=IDEA), places.of_ideas(brief.round)
        try:
            found = await self.model.ask(talk, read_ideas, "ideas", place, SCHEMA)
        except NotRecorded:
            if brief.round == 1 and not any(one.status is None and one.remark for one in brief.siblings):
                raise  # but not where it is asked again because ideas were refused
            return []  # another judge, other numbers, another parent than in the recorded run
        fresh: dict[str, Proposed] = {}
        for proposed in found:
            if _plain(proposed.title) not in tried:
                fresh.setdefault(_plain(proposed.title), proposed)
        return [_idea(brief, proposed) for proposed in list(fresh.values())[:count]]

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
        """One complete candidate module; attempts differ because each is told to leave the obvious to the first."""
        talk = _talk(brief, "write", idea=_told(idea), attempt=attempt)
        place = places.of_code(idea, attempt)
        return await self.model.ask(talk, lambda text: read_module(text, brief.problem), "code", place)

    async def repair(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """The corrected module, or None where the model changes nothing."""
        seen = _seen(brief, idea, trial, evaluation)
        diagnosis, number = "", trial.step + 1
        try:
            if self.helper:
                talk = _talk(brief, "diagnose", **seen)
                place = places.of_code(idea, trial.attempt, f"diagnosis {number}")
                diagnosis = await self.model.ask(talk, _prose, "helper", place)
            talk = _talk(brief, REPAIRS[evaluation.status], **seen, diagnosis=diagnosis)
            place = places.of_code(idea, trial.attempt, f"repair {number}")
            return await self._mended(talk, brief, trial, "repair", place)
        except NotRecorded:
            return None

    async def escalate(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """The same by the model that is asked last, once, with all that was tried before."""
        if not self.escalation:
            return None
        talk = _talk(brief, "escalate", **_seen(brief, idea, trial, evaluation), diagnosis="")
        try:
            place = places.of_code(idea, trial.attempt, "last try")
            return await self._mended(talk, brief, trial, "escalation", place)
        except NotRecorded:
            return None

    async def _mended(self, talk: Talk, brief: Brief, trial: Trial, role: Role, place: str) -> str | None:
        source = await self.model.ask(talk, lambda text: read_module(text, brief.problem), role, place)
        return None if source == trial.source else source


def _seen(brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> dict[str, object]:
    """What a prompt says of a failure."""
    return {
        "idea": _told(idea),
        "source": trial.source,
        "status": evaluation.status.replace("_", " "),
        "meaning": MEANINGS[evaluation.status],
        "log": excerpt(prompts.clean(evaluation.log), trial.source) or "(nothing)",
        "mends": outcomes(brief.mends),
    }


def _prose(text: str) -> str:
    """A helper's answer, whatever it is: it is quoted, not obeyed."""
    return shortened(text.strip(), DIAGNOSIS)


def _words(value: object) -> str:
    """What stands where a text was asked for; nothing, numbers, lists and objects are told as text too."""
    try:
        if isinstance(value, list):
            return "; ".join(map(_words, value))
        told = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
        return prompts.clean(told).strip()
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
    """The first JSON list with titled objects in the reply, wherever it stands (fenced, after prose, under a key).

    Of these what lacks something is passed over: the rest is paid for.
    """
    rows = next((rows for value in _json_values(text) if (rows := _rows(value))), None)
    if rows is None:
        raise Malformed(f"there is no JSON list of ideas in it ({_json_fault(text)})")
    found, faults = [], []
    for row in rows:
        try:
            found.append(Proposed.model_validate(row))
        except ValidationError as error:
            faults.append(error.errors(include_url=False)[0])
    if not found:
        raise Malformed(f"an idea's {'.'.join(map(str, faults[0]['loc']))}: {faults[0]['msg']}")
    return found


def _json_values(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    for start in islice(re.finditer(r"[\[{]", text), BRACKETS):
        try:
            yield decoder.raw_decode(text, start.start())[0]
        except (ValueError, RecursionError):  # which a number of thousands of digits raises too
            continue


def _rows(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        return next((rows for inner in value.values() if isinstance(inner, list) and (rows := _rows(inner))), None)
    rows = value if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, dict) and "title" in row] or None


def _json_fault(text: str) -> str:
    start = re.search(r"[\[{]", text)
    if start is None:
        return "no bracket in the reply"
    try:
        json.JSONDecoder().raw_decode(text, start.start())
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "nested too deep"
    return "its objects need a title"


def read_module(text: str, problem: Problem) -> str:
    """The reply's last fenced block that defines ModelNew, under the problem's source where it lacks Model itself."""
    text = re.sub("\r\n?", "\n", text)
    blocks = [code for language, code in _fenced(text) if language in ("python", "py", "python3", "")]
    if not blocks and re.search(r"^(```|~~~)", text, re.MULTILINE):
        raise Malformed("its ```python block is not closed, as if it was cut off")
    if not blocks and _is_python(text):
        blocks = [text]
    named = [block for block in blocks if re.search(r"^class ModelNew\b", block, re.MULTILINE)]
    if not named:
        raise Malformed("there is no ```python block that defines class ModelNew at module level")
    return _whole(named[-1].strip() + "\n", problem)


def _fenced(text: str) -> Iterator[tuple[str, str]]:
    """The blocks between two lines of one fence, each with its language; a fence that nothing closes opens none."""
    rows = text.split("\n")
    last = {row.rstrip(" \t"): number for number, row in enumerate(rows)}
    number = 0
    while number < len(rows):
        opened = FENCE.fullmatch(rows[number])
        number += 1
        if opened and last.get(opened[1], -1) >= number:
            start = number
            while rows[number].rstrip(" \t") != opened[1]:
                number += 1
            yield opened[2].lower(), "".join(f"{row}\n" for row in rows[start:number])
            number += 1


def _whole(code: str, problem: Problem) -> str:
    tree = _parsed(code)
    if any(isinstance(node, ast.ClassDef) and node.name == "Model" for node in tree.body):
        return code
    future = {
        number
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    kept = [row for number, row in enumerate(code.split("\n"), 1) if number not in future]
    whole = problem.source.rstrip() + "\n\n\n" + "\n".join(kept).strip() + "\n"
    _parsed(whole)
    return whole


def _is_python(text: str) -> bool:
    try:
        _parsed(text)
    except Malformed:
        return False
    return True


def _parsed(code: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a model's string is its own affair
            return ast.parse(code)
    except SyntaxError as error:
        raise Malformed(f"the module does not parse: line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"the module does not parse: {error}") from None


def _plain(title: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", title.casefold())) or title


def _idea(brief: Brief, proposed: Proposed) -> Idea:
    told = (proposed.bottleneck, proposed.transformation, proposed.reasoning, proposed.predicted_gain, proposed.risk)
    parts = {name: shortened(text, IDEA) for name, text in zip(PARTS, told, strict=True)}
    title = prompts.line(proposed.title, 100)
    return Idea(
        id=digest(brief.problem.id, brief.round, brief.parent.id, _plain(title)),
        round=brief.round,
        parent=brief.parent.id,
        title=title,
        reasoning="\n".join(f"{name}: {LABEL.sub('  ', text)}" for name, text in parts.items() if text),
        passages=tuple(passage.id for passage in brief.passages),
    )


def _told(idea: Idea) -> str:
    return f"{idea.title}\n{idea.reasoning}"


def _talk(brief: Brief, name: str, **asked: object) -> Talk:
    target = brief.problem.target
    if target not in prompts.TARGETS:
        raise UsageError(f"No prompt is written for target {target}: choose one of {', '.join(prompts.TARGETS)}.")
    system = prompts.render("system", language=LANGUAGES.get(target, target))
    return (("system", system), ("user", prompts.render(name, **facts(brief), **asked)))
