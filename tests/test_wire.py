"""The wire between the parts: what the agent reads of an answer is what the server says, under the same name."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, stdio_client
from pydantic import BaseModel

from kernel_agent.bench import answers, profiles
from kernel_agent.bench.connection import AHEAD, AT, WHOLE
from kernel_agent.bench.environment import Environment
from kernel_agent.bench.occupancy import ORDER
from kernel_agent.bench.transport import command
from kernel_agent.cli.evaluate import STAGES
from kernel_agent.run.budget import JUDGING
from ncu_server.wire import evaluation, meta, profiling
from tests.support.paths import ROOT

PAIRS: list[tuple[type, type[BaseModel]]] = [
    (Environment, evaluation.EnvironmentResult),
    (answers.DescribeAnswer, evaluation.DescribeResult),
    (answers.EvaluateAnswer, evaluation.EvaluateResult),
    (answers.VerifyAnswer, evaluation.ModuleResult),
    (answers.ProfileKernelAnswer, profiling.ProfileResult),
    (profiles.KernelReport, profiling.KernelReport),
]


def kinds(annotation: Any) -> Iterator[Any]:
    """The types that may stand somewhere in an annotation, without None and the containers around them."""
    if typing.get_origin(annotation) is Literal or not typing.get_args(annotation):
        yield from () if annotation in (type(None), ...) else (annotation,)
        return
    for part in typing.get_args(annotation):
        yield from kinds(part)


def values(kind: Any) -> set[str] | None:
    """The words that a closed type holds."""
    if typing.get_origin(kind) is Literal:
        return set(typing.get_args(kind))
    return {one.value for one in kind} if isinstance(kind, type) and issubclass(kind, Enum) else None


def read_fields(ours: type, theirs: type[BaseModel], path: str) -> Iterator[tuple[str, str | None]]:
    """Each field that is read, by its path, with what is wrong with it."""
    hints = typing.get_type_hints(ours)
    for field in fields(ours):
        name = f"{path}.{field.name}"
        if field.name not in theirs.model_fields:
            yield name, f"{theirs.__name__} has no {field.name}"
            continue
        yield name, None
        own, others = list(kinds(hints[field.name])), list(kinds(theirs.model_fields[field.name].annotation))
        models = [one for one in others if isinstance(one, type) and issubclass(one, BaseModel)]
        for kind in own:
            if is_dataclass(kind):
                assert isinstance(kind, type) and len(models) == 1, f"{name} is no model of the server's"
                yield from read_fields(kind, models[0], name)
            elif words := values(kind):
                theirs_words = set().union(*filter(None, map(values, others)))
                yield name, None if words == theirs_words else f"{words} is not {theirs_words}"


def every_field() -> list[tuple[str, str | None]]:
    return [row for ours, theirs in PAIRS for row in read_fields(ours, theirs, ours.__name__)]


def test_every_field_that_the_agent_reads_exists_in_the_server_s_models() -> None:
    rows = every_field()
    assert len({name for name, _ in rows}) >= 124
    assert not [wrong for _, wrong in rows if wrong]


def test_a_field_that_the_server_does_not_have_is_found() -> None:
    class Stall(BaseModel):
        reason: str

    assert [wrong for _, wrong in read_fields(profiles.Stall, Stall, "")] == [
        None,
        "Stall has no share_pct",
        "Stall has no waits_for",
    ]


def test_the_numbers_of_a_profile_that_reach_a_prompt_are_the_server_s() -> None:
    groups = (profiling.SpeedOfLight, profiling.Roofline, profiling.Occupancy, profiling.Memory)
    known = {name for group in (*groups, profiling.KernelDigest, profiling.StaticKernel) for name in group.model_fields}
    assert set(profiles.TITLES) <= known
    assert {"compute_unit", "memory_unit"} <= set(profiling.SpeedOfLight.model_fields)


def test_the_stages_that_the_agent_adds_up_are_the_server_s() -> None:
    assert {*STAGES, *JUDGING} <= set(evaluation.Stages.model_fields)


def test_both_ends_have_the_same_keys_in_meta() -> None:
    assert (AHEAD, AT, WHOLE) == (meta.AHEAD, meta.STAGE, meta.WHOLE)
    assert {*ORDER} == {*meta.STAGES}


def test_no_field_of_an_answer_is_read_by_a_key_which_the_walk_would_not_see() -> None:
    models = [kind for part in (evaluation, profiling) for kind in vars(part).values() if isinstance(kind, type)]
    known = {name for kind in models if issubclass(kind, BaseModel) for name in kind.model_fields}
    found = []
    for path in sorted((ROOT / "kernel_agent" / "bench").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Subscript(value=read, slice=ast.Constant(value=str(key)), ctx=ast.Load()) if key in known:
                    found.append((path.name, ast.unparse(read), key))
                case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]) if key in known:
                    found.append((path.name, ast.unparse(node.func), key))
    assert found == []


def strangers(answer: Any, model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The keys of an answer that the server's model does not have."""
    for key, value in answer.items():
        if key not in model.model_fields:
            yield f"{path}.{key}"
            continue
        for kind in kinds(model.model_fields[key].annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                for one in value if isinstance(value, Sequence) else [value]:
                    yield from strangers(one or {}, kind, f"{path}.{key}")


ASKED: Mapping[str, tuple[type[BaseModel], Mapping[str, Any]]] = types.MappingProxyType(
    {
        "check_environment": (evaluation.EnvironmentResult, {}),
        "describe_problem": (evaluation.DescribeResult, {"problem": "", "target": "cpu"}),
        "evaluate_kernel": (evaluation.EvaluateResult, {"candidate": "# speed: 2", "problem": "", "target": "cpu"}),
        "verify_module": (evaluation.ModuleResult, {"source": "", "problem": "", "target": "cpu"}),
        "profile_kernel": (
            profiling.ProfileResult,
            {"candidates": ["a", "# crashes"], "problem": "# profiler", "target": "cpu"},
        ),
    }
)


@pytest.fixture
def scripted(tmp_path: Path) -> Client:
    script = ROOT / "tests" / "support" / "scripted_bench.py"
    return Client(stdio_client(command(f"python {script} --log {tmp_path / 'log'}")))


async def test_the_scripted_server_answers_in_the_form_of_the_real_one(scripted: Client) -> None:
    async with scripted as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == set(ASKED)
        for tool, (model, arguments) in ASKED.items():
            answer = (await client.call_tool(tool, dict(arguments))).structured_content
            model.model_validate(answer)
            assert not list(strangers(answer, model)), tool


@pytest.mark.parametrize("order", ["wrong", "build_error", "run_error", "timeout", "suspect", "rejected"])
async def test_the_scripted_server_fails_in_the_form_of_the_real_one(scripted: Client, order: str) -> None:
    asked = {"candidate": f"# verdict: {order}", "problem": "", "target": "cpu"}
    async with scripted as client:
        answer = (await client.call_tool("evaluate_kernel", asked)).structured_content
    assert evaluation.EvaluateResult.model_validate(answer).status == order
