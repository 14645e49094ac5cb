"""A person, or another agent, is the model: questions and answers are files."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from kernel_agent.errors import ProviderError, Waiting
from kernel_agent.interfaces import OnNotice, ignore
from kernel_agent.llm.call_site import load
from kernel_agent.llm.model import Question, Reply
from rag import text_files


class ManualModel:
    """Each question is a file NNN.prompt.md in `folder`; its answer is awaited in NNN.reply.md beside it.

    A question asked before keeps its number, also where the run went on elsewhere and the words differ a little: it is
    known by its words, else by its place in the run. One without an answer is written again where its words differ.
    Without `wait`, a question that has no answer yet raises Waiting. `on_notice` hears where to look.
    """

    remedy = "correct the reply's file"

    def __init__(self, folder: Path, on_notice: OnNotice = ignore, poll_s: float = 0.5, wait: bool = True) -> None:
        self._folder = folder
        self._notice = on_notice
        self._poll_s = poll_s
        self._wait = wait

    async def answer(self, question: Question) -> Reply:
        prompt = self._written(question)
        reply = _reply_of(prompt)
        if _size(reply) == 0:
            if not self._wait:
                raise Waiting([str(prompt)])
            self._notice(f"waiting for {reply}: answer {prompt.name} there")
        seen = -1
        while True:
            size = _size(reply)
            if size and size == seen:  # still for one poll: whoever writes it has finished
                return Reply(_read(reply), "manual")
            seen = size
            await asyncio.sleep(self._poll_s)

    def _written(self, question: Question) -> Path:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            asked = sorted(path for path in self._folder.glob("*.prompt.md") if path.name.split(".")[0].isdecimal())
            marks = {path: _mark(path) for path in asked}
            same = (path for path, mark in marks.items() if mark.get("key") == question.key)
            places = {load(mark.get("place")): path for path, mark in reversed(marks.items())}
            number = max((int(path.name.split(".")[0]) for path in asked), default=0) + 1
            found = next(same, question.place and places.get(question.place))
            path = found or self._folder / f"{number:03}.prompt.md"
            if not found or (marks[found].get("key") != question.key and _size(_reply_of(found)) == 0):
                text_files.write_whole(path, _text(question))  # whoever watches the folder sees whole prompts
        except OSError as error:
            raise ProviderError(f"No prompt can be written in {self._folder} ({error.strerror}).") from None
        return path

    async def close(self) -> None:
        pass


def _text(question: Question) -> str:
    mark = json.dumps({"key": question.key, "role": question.role, "place": question.place and question.place.row()})
    mark = mark.replace("--", "-\\u002d")  # which would end the comment
    return f"<!-- {mark} -->\n" + "".join(f"\n# {speaker}\n\n{said}\n" for speaker, said in question.talk)


def _mark(prompt: Path) -> dict[str, Any]:
    with prompt.open(encoding="utf-8", errors="replace") as file:
        found = re.fullmatch(r"<!-- (\{.*\}) -->\n", file.readline())
    try:
        mark = json.loads(found[1]) if found else {}
    except ValueError:
        return {}
    return mark if isinstance(mark, dict) else {}


def _reply_of(prompt: Path) -> Path:
    return prompt.with_name(prompt.name.replace(".prompt.", ".reply."))


def _size(reply: Path) -> int:
    try:
        return reply.stat().st_size
    except OSError:  # not there, or not any more: an editor puts a new file in its place
        return 0


def _read(reply: Path) -> str:
    try:
        return text_files.read(reply, otherwise="cp1252")
    except OSError as error:
        raise ProviderError(f"The reply {reply} cannot be read ({error.strerror}).") from None
    except text_files.NotText as fault:
        raise ProviderError(f"The reply {reply} {fault}.") from None
