"""Which ideas are new: whether one says what another one says already, in other words (see similarity).

Where the library has vectors, what is all but the same in meaning is one idea as well. Sentences that two ideas share
word for word, such as how both feed the tensor cores, are no part of what is compared: an idea is handed over alone, so
it has to repeat them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kernel_agent.knowledge.similarity import apart, says_the_same
from kernel_agent.run import tree
from kernel_agent.run.types import Idea, Trial, digest

LIKE = 0.9
"""Cosine of MiniLM's vectors from which two ideas are one. Of 30 ideas that a large model had in six runs on four
problems, two different ones of a problem came to 0.86 at most, and one that was had twice, in two runs, to 0.91."""


def text_of(idea: Idea) -> str:
    """What an idea would do: its title, and its transformation where it has one."""
    return f"{idea.title}. {idea.transformation}" if idea.transformation else idea.title


Likeness = Callable[[str, Sequence[str]], Sequence[float]]
"""How like a text each of others is in meaning, 0 to 1; nothing where that is not known."""


def unknown(text: str, others: Sequence[str]) -> Sequence[float]:
    """The likeness of those who have no vectors."""
    return ()


def repeats(idea: Idea, others: Iterable[Idea], likeness: Likeness = unknown) -> Idea | None:
    """The first of the others that says the same; ideas of templates are told apart by their genes alone."""
    if idea.change is not None:
        return None
    told = [other for other in others if other.change is None]
    in_words = (other for other in told if says_the_same(text_of(idea), text_of(other)))
    if found := next(in_words, None):
        return found
    unlike = [other for other in told if apart(text_of(idea), text_of(other)) == (text_of(idea), text_of(other))]
    near = zip(unlike, likeness(text_of(idea), [text_of(other) for other in unlike]), strict=False)
    return next((other for other, cosine in near if cosine >= LIKE), None)


def signature(idea: Idea) -> str:
    """What makes two ideas the same: equal genes, or an equal title but for case and punctuation."""
    if idea.change is not None:
        return json.dumps(dict(idea.change), sort_keys=True)
    return " ".join(re.findall(r"\w+", idea.title.casefold()))


def new_ideas(
    run: tree.Run,
    parent: Trial,
    round: int,
    proposed: Iterable[Idea],
    taken: Iterable[Idea] = (),
    likeness: Likeness = unknown,
) -> tuple[Idea, ...]:
    """The proposed ideas, bound to their parent and round, without those that were tried or `taken` already.

    A model's idea counts as tried on its own lineage only, and in other words too; equal genes make the same kernel
    wherever they stand.
    """
    on_path = {trial.id for trial in tree.lineage(run, parent)}
    tried = [idea for idea in run.ideas.values() if idea.parent in on_path or idea.change is not None] + list(taken)
    marks = {signature(idea) for idea in tried}
    fresh: dict[str, Idea] = {}
    for idea in proposed:
        mark = signature(idea)
        if mark not in marks and mark not in fresh and repeats(idea, [*tried, *fresh.values()], likeness) is None:
            fresh[mark] = replace(idea, id=digest(round, parent.id, mark), round=round, parent=parent.id)
    return tuple(fresh.values())
