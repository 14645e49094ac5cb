"""Many things done at once, of which one may fail and some may wait for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast

from kernel_agent.errors import Waiting

T = TypeVar("T")


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order, all computed at once; the first failure stops the rest and is raised as itself.

    What waits for a person stops nothing: it is raised when all the rest is done.
    """
    waits: list[Waiting] = []

    async def going_on(one: Coroutine[Any, Any, T]) -> T | None:
        try:
            return await one
        except Waiting as wait:
            waits.append(wait)
            return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(going_on(one)) for one in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0]  # noqa: B904
    if waits:
        raise Waiting(sorted(prompt for wait in waits for prompt in wait.prompts))
    return [cast(T, task.result()) for task in tasks]
