"""The module of a kernel, found in a model's reply wherever it stands."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import product

from kernel_agent.llm.model import Malformed
from kernel_agent.replies import patch
from kernel_agent.replies.blocks import FOREIGN, Block, blocks
from kernel_agent.replies.relaxed_json import values
from kernel_agent.replies.source import Fault, Parsed, bound, defined, parsed, returns, unbound
from kernel_agent.replies.text import plain, spoken
from kernel_agent.run.types import Problem

NAME = "ModelNew"
MENTION = re.compile(rf"^[ \t>]*(?:class[ \t]+)?{NAME}\b[ \t]*[(:=]", re.MULTILINE)
FENCE = re.compile(r"[ \t>]*(?:`{3,}|~{3,})")
BEGINS = re.compile(r"(?:import|from|class|def|async def|@)[ \t]*\w|[rRbBuU]?(?:\"\"\"|''')|#|\w+[ \t]*=(?!=)")
"""A row with which code begins, where no fence says so."""
ASSIGNS = re.compile(r"\w+[ \t]*=")
ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")

MENTIONS = 8
"""Rows that define ModelNew which are looked at, from the last on."""
EDGES = 12
"""Fences on either side of such a row that may be the ones around its module."""
STARTS = 40
"""Rows of a text without fences with which its code may begin."""


def read_module(text: str, problem: Problem, parent: str = "") -> str:
    """The last complete module of the reply that defines ModelNew, under the problem's source where it lacks Model.

    It may stand in any fence or none, behind thoughts, in several blocks, in JSON, or as a diff against `parent`.
    Raises Malformed with the reason and its line in the reply.
    """
    text, reasons = plain(text), list[Malformed]()
    given = parsed(problem.source)
    known = bound(given.tree) if isinstance(given, Parsed) else set[str]()
    for said in spoken(text):
        for read in (_written, _wrapped, lambda shown, _: _patched(shown, parent)):
            try:
                if (code := read(said, known)) is not None:
                    return _whole(code.strip("\n").rstrip() + "\n", problem)
            except Malformed as reason:
                reasons.append(reason)
    raise reasons[0] if reasons else Malformed(_absence(text))


def _written(text: str, known: set[str]) -> str | None:
    """The module as it stands in a block, or in several, or in the open; `known` is what the problem's source binds."""
    found, rows, cut = blocks(text), text.split("\n"), None
    lines = [text.count("\n", 0, one.start()) + 1 for one in MENTION.finditer(text)]
    for line in reversed(lines[-MENTIONS:]):
        block = next((one for one in found if one.covers(line)), None)
        if block and patch.is_patch(block.code, block.language):
            continue
        read = parsed(block.code) if block else None
        open_ended = block is None or not block.closed
        if not _defines(read):
            read, open_ended = _rescued(rows, line) or (read, open_ended)
        if isinstance(read, Parsed) and _defines(read):
            if not open_ended or returns(defined(read.tree)[NAME]):
                return _joined(read, [one for one in found if one is not block], known)
            cut = cut or Malformed(f"its code is cut off: it ends in line {_last(rows)} of the reply, within {NAME}")
            continue
        if block is None and not found:
            block, read = _bare(rows, line)
        if block is None or not isinstance(read, Fault):
            continue
        fault = _said(block, read)
        if block.closed or not read.open:
            raise fault
        cut = cut or fault
    if cut:
        raise cut
    return None


def _defines(read: Parsed | Fault | None) -> bool:
    return isinstance(read, Parsed) and NAME in defined(read.tree)


def _last(rows: Sequence[str]) -> int:
    """The number of the last row that is not empty."""
    return next((number for number in range(len(rows), 0, -1) if rows[number - 1].strip()), 1)


def _said(block: Block, fault: Fault) -> Malformed:
    line = block.line + fault.row - 1
    if fault.open and not block.closed:
        return Malformed(f"its code is cut off: it ends in line {line} of the reply ({fault.reason}) and is not closed")
    return Malformed(f"the module does not parse: line {line} of the reply: {fault.reason}")


def _rescued(rows: Sequence[str], line: int) -> tuple[Parsed, bool] | None:
    """The module around a row where Markdown does not show it, and whether only the reply's end ends it.

    A fence within its strings ends a block too early, words behind a closing fence too late, and there may be none. Of
    the fences on either side, the farthest two between which everything parses are taken, for a fence parses only
    within a string; then the same without prose.
    """
    at = line - 1
    fences = [number for number, row in enumerate(rows) if FENCE.match(row)]
    before = [-1, *[one for one in fences if one < at][-EDGES:]]
    after = [len(rows), *reversed([one for one in fences if one > at][:EDGES])]
    for trim in (False, True):
        for start, end in product(before, after):
            part = rows[start + 1 : end]
            for code in _cut(part, at - start - 1) if trim else [_flat(part)]:
                read = parsed(code)
                if isinstance(read, Parsed) and _defines(read):
                    return read, end == len(rows)
    return None


def _flat(rows: Sequence[str]) -> str:
    """The rows without what a quote or a list puts before each."""
    filled = [row for row in rows if row.strip()]
    if filled and all(row.lstrip().startswith(">") for row in filled):
        rows = [re.sub(r"^\s*> ?", "", row) for row in rows]
    return textwrap.dedent("\n".join(rows))


def _cut(rows: Sequence[str], at: int) -> Iterator[str]:
    """Each stretch of the rows around row `at` that begins like code, without the prose that follows it."""
    end = next(number for number in range(at + 1, len(rows) + 1) if _is_prose(rows[number:]))
    starts = [number for number, row in enumerate(rows[: at + 1]) if BEGINS.match(row.lstrip())]
    for start in starts[:STARTS]:
        fault = parsed(_flat(rows[start:]))
        yield _flat(rows[start:] if isinstance(fault, Parsed) else rows[start:end])
        if isinstance(fault, Parsed) or fault.row > 1 or ASSIGNS.match(rows[start]):  # code begins here, faulty or not
            return


def _is_prose(rows: Sequence[str]) -> bool:
    return all(not row[:1].isspace() or not row.strip() or ITEM.match(row) for row in rows) and not any(
        BEGINS.match(row) and not row.startswith("#") for row in rows
    )


def _bare(rows: Sequence[str], line: int) -> tuple[Block | None, Fault | None]:
    """In a reply without blocks, the code from its first row on, and its fault."""
    for number, row in enumerate(rows[:line]):
        if BEGINS.match(row):
            fault = parsed("\n".join(rows[number:]))
            if isinstance(fault, Fault) and fault.row > 1:
                return Block("", "\n".join(rows[number:]), number + 1, False), fault
    return None, None


def _joined(module: Parsed, others: Sequence[Block], known: set[str]) -> str:
    """The module with the parts of it that stand in other blocks: Python above it, CUDA or C++ as a string.

    `known` are the names that the problem's source defines.
    """
    code, missing = module.code, set(unbound(module.tree)) - known
    parts = [read for one in others if isinstance(read := parsed(one.code), Parsed) and NAME not in bound(read.tree)]
    for part in parts:
        if missing & set(defined(part.tree)):
            code = f"{part.code.rstrip()}\n\n\n{code}"
            missing = (missing | set(unbound(part.tree))) - bound(part.tree) - known
    foreign = [one for one in others if _is_foreign(one)]
    wanted = [name for name in unbound(module.tree) if name in missing]
    if not foreign or not wanted:
        return code
    if len(foreign) > 1 or len(wanted) > 1:
        lines = ", ".join(str(one.line) for one in foreign)
        raise Malformed(
            f"its module uses {', '.join(wanted)}, which nothing in it defines, and the C++ of the reply, in line "
            f"{lines}, stands outside of it: put it into the module as a string"
        )
    return f"{wanted[0]} = {_literal(foreign[0].code)}\n\n{code}"


def _is_foreign(block: Block) -> bool:
    return isinstance(parsed(block.code), Fault) and (
        block.language in FOREIGN or "#include" in block.code or "__global__" in block.code
    )


def _literal(text: str) -> str:
    return repr(text) if '"""' in text or text.endswith("\\") else f'r"""\n{text}"""'


def _patched(text: str, parent: str) -> str | None:
    """The parent with the changes that the reply gives instead of a module."""
    found = [(one.code, one.line - 1) for one in blocks(text) if patch.is_patch(one.code, one.language)]
    if not found and patch.is_patch(text):
        found = [(text, 0)]
    if not found:
        return None
    code = plain(parent)
    for changes, above in found:
        code = patch.applied(code, patch.hunks(changes), above)
    if code == plain(parent):
        raise Malformed("it is a diff against the parent, not the whole module, and it changes nothing")
    read = parsed(code)
    if isinstance(read, Fault):
        raise Malformed(
            f"it is a diff against the parent, not the whole module, and with it line {read.row} does not parse: "
            f"{read.reason}"
        )
    if NAME not in defined(read.tree):
        raise Malformed(f"it is a diff against the parent, not the whole module, and with it nothing defines {NAME}")
    return code


def _wrapped(text: str, known: set[str]) -> str | None:
    """The module where it is a string of the reply's JSON."""
    if NAME not in text:
        return None
    for value in reversed(values(text)[0]):
        for one in _strings(value):
            if NAME in one and (code := _written(plain(one), known) or _wrapped(one, known)) is not None:
                return code
    return None


def _strings(value: object) -> Iterator[str]:
    held = [value]
    while held:
        one = held.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict | list):
            held += one.values() if isinstance(one, dict) else one


def _absence(text: str) -> str:
    """Why there is no module in the reply."""
    found = blocks(text)
    what = f"there is no ```python block that defines class {NAME} at module level"
    if not text.strip():
        return "it is empty"
    for block in reversed(found):
        read = parsed(block.code)
        if isinstance(read, Fault):
            if not block.closed and read.open and block.language not in FOREIGN:
                return f"its code is cut off: the block that opens in line {block.line - 1} of the reply is not closed"
            continue
        inner = [node for node in ast.walk(read.tree) if isinstance(node, ast.ClassDef)]
        if nested := next((node for node in inner if node.name == NAME), None):
            return f"{what}: the one in line {block.line + nested.lineno - 1} of the reply stands within another block"
        if inner:
            names = ", ".join(dict.fromkeys(node.name for node in inner))
            return f"{what}: the code in line {block.line} of the reply defines {names}"
    return f"{what}: it has no code at all" if not found else what


def _whole(code: str, problem: Problem) -> str:
    read = parsed(code)
    assert isinstance(read, Parsed), "what is taken parses"
    if "Model" in defined(read.tree):
        return read.code
    future = {
        number
        for node in read.tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    kept = [row for number, row in enumerate(read.code.split("\n"), 1) if number not in future]
    whole = problem.source.rstrip() + "\n\n\n" + "\n".join(kept).strip() + "\n"
    if isinstance(fault := parsed(whole), Fault):
        raise Malformed(f"the module does not parse below the problem's source: {fault.reason}")
    return whole
