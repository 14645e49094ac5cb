"""The proposer that asks a model for ideas, for kernels, and for repairs by the judge's log."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kernel_agent import prompts
from kernel_agent.errors import UsageError
from kernel_agent.llm import call_site
from kernel_agent.llm.call_site import CallSite
from kernel_agent.llm.model import Model, NotRecorded, Role, Talk
from kernel_agent.prompts.brief import facts, outcomes
from kernel_agent.prompts.log_excerpt import excerpt, shortened
from kernel_agent.replies import SCHEMA, Proposed, read_ideas, read_module
from kernel_agent.run.brief import Brief, Unjudged
from kernel_agent.run.types import Evaluation, Idea, Status, Trial, digest
from kernel_agent.targets import target_of

MEANINGS = {
    Status.REJECTED: "The source breaks the rules; it was not run.",
    Status.BUILD_ERROR: "It does not compile or import.",
    Status.POOR_BUILD: "It compiles, and badly; it was not run.",
    Status.RUN_ERROR: "It raised or crashed: suspect bounds, alignment, launch configuration, shared memory.",
    Status.TIMEOUT: "It did not finish in time: suspect a loop without end, or a barrier not reached by all.",
    Status.WRONG: "Its outputs differ: suspect indexing, tails, missing barriers, a wrong reduction, lost precision.",
    Status.SUSPECT: "Its time or outputs cannot be believed: suspect skipped work, or work left running.",
    Status.PASSED: "It is correct.",
}
REPAIRS = {
    Status.BUILD_ERROR: "repair_build",
    Status.POOR_BUILD: "repair_compile",
    Status.RUN_ERROR: "repair_run",
    Status.TIMEOUT: "repair_run",
    Status.WRONG: "repair_wrong",
    Status.SUSPECT: "repair_rules",
    Status.REJECTED: "repair_rules",
}
Asked = tuple[Talk, Mapping[str, int]]
"""A question, and the characters of it by part."""

DIAGNOSIS = 2000
"""Characters of a helper's answer that are passed on."""

IDEA = 4000
"""Characters of each part of an idea that are passed on."""


class ModelProposer:
    """A `Proposer` on a model. Every method raises ProviderError when the model cannot be used, Unusable its replies.

    With a `helper`, that role says what is wrong with a failed kernel before it is mended; with `escalation`, that role
    gets the last try at one.
    """

    def __init__(self, model: Model, helper: bool = False, escalation: bool = False) -> None:
        self.model, self.helper, self.escalation = model, helper, escalation

    async def ideas(self, brief: Brief, count: int) -> list[Idea]:
        """At most `count` new ideas for the parent; fewer where the model repeats what was tried."""
        tried = {_plain(outcome.title) for outcome in (*brief.siblings, *brief.ancestors)}
        if brief.parent_idea:
            tried.add(_plain(brief.parent_idea.title))
        talk, parts = _talk(brief, "ideas", count=count, idea_limit=IDEA)
        try:
            place = call_site.of_ideas(brief.round)
            found = await self.model.ask(talk, read_ideas, "ideas", place, SCHEMA, parts)
        except NotRecorded:
            if brief.round == 1 and not any(one.status is Unjudged.REFUSED for one in brief.siblings):
                raise  # but not where it is asked again because ideas were refused
            return []  # another judge, other numbers, another parent than in the recorded run
        fresh: dict[str, Proposed] = {}
        for proposed in found:
            if _plain(proposed.title) not in tried:
                fresh.setdefault(_plain(proposed.title), proposed)
        return [_idea(brief, proposed) for proposed in list(fresh.values())[:count]]

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
        """One complete candidate module; attempts differ because each is told to leave the obvious to the first."""
        talk, parts = _talk(brief, "write", idea=_told(idea), attempt=attempt)
        place = call_site.of_code(idea, attempt)
        return await self.model.ask(talk, _reader(brief, brief.parent), "code", place, None, parts)

    async def repair(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """The corrected module, or None where the model changes nothing."""
        seen = _seen(brief, idea, trial, evaluation)
        diagnosis, number = "", trial.step + 1
        try:
            if self.helper:
                asked = _talk(brief, "diagnose", **seen)
                place = call_site.of_code(idea, trial.attempt, "diagnosis", number)
                diagnosis = await self.model.ask(asked[0], _prose, "helper", place, None, asked[1])
            asked = _talk(brief, REPAIRS[evaluation.status], **seen, diagnosis=diagnosis)
            place = call_site.of_code(idea, trial.attempt, "repair", number)
            return await self._mended(asked, brief, trial, "repair", place)
        except NotRecorded:
            return None

    async def escalate(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """The same by the model that is asked last, once, with all that was tried before."""
        if not self.escalation:
            return None
        asked = _talk(brief, "escalate", **_seen(brief, idea, trial, evaluation), diagnosis="")
        try:
            place = call_site.of_code(idea, trial.attempt, "last try", None)
            return await self._mended(asked, brief, trial, "escalation", place)
        except NotRecorded:
            return None

    async def _mended(self, asked: Asked, brief: Brief, trial: Trial, role: Role, place: CallSite) -> str | None:
        source = await self.model.ask(asked[0], _reader(brief, trial), role, place, None, asked[1])
        return None if source == trial.source else source


def _reader(brief: Brief, parent: Trial) -> Callable[[str], str]:
    """Reads a module out of a reply, which may be a diff against the parent."""
    return lambda text: read_module(text, brief.problem, parent.source)


def _seen(brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> dict[str, object]:
    """What a prompt says of a failure."""
    return {
        "idea": _told(idea),
        "source": trial.source,
        "status": evaluation.status.replace("_", " "),
        "meaning": MEANINGS[evaluation.status],
        "log": excerpt(evaluation, trial.source) or "(nothing)",
        "repair_history": outcomes(brief.repair_history),
    }


def _prose(text: str) -> str:
    """A helper's answer, whatever it is: it is quoted, not obeyed."""
    return shortened(text.strip(), DIAGNOSIS)


def _plain(title: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", title.casefold())) or title


def _idea(brief: Brief, proposed: Proposed) -> Idea:
    title = prompts.line(proposed.title, 100)
    return Idea(
        id=digest(brief.problem.id, brief.round, brief.parent.id, _plain(title)),
        round=brief.round,
        parent=brief.parent.id,
        title=title,
        passages=tuple(passage.id for passage in brief.passages),
        predicted=_over_parent(brief, proposed.predicted),
        bottleneck=shortened(proposed.bottleneck, IDEA),
        transformation=shortened(proposed.transformation, IDEA),
        reasoning=shortened(proposed.reasoning, IDEA),
        predicted_gain=shortened(proposed.predicted_gain, IDEA),
        risk=shortened(proposed.risk, IDEA),
    )


def _over_parent(brief: Brief, predicted: float | None) -> float | None:
    """What is promised over the time to beat, as a factor over the parent."""
    known, judged = brief.description, brief.parent_evaluation
    timing = judged.timing if judged and judged.timing else known.baselines["eager"]
    return predicted and predicted * timing.median_us / known.baselines[known.to_beat].median_us


def _told(idea: Idea) -> str:
    """What an author needs of an idea: how it is to be done, and what is easily got wrong."""
    risk = f"\nRisk: {idea.risk}" if idea.transformation and idea.risk else ""
    return f"{idea.title}\n{idea.transformation or idea.account}{risk}"


def _talk(brief: Brief, name: str, **asked: object) -> Asked:
    """What is asked, and the characters of it by part."""
    target = brief.problem.target
    if target not in prompts.TARGETS:
        raise UsageError(f"No prompt is written for target {target}: choose one of {', '.join(prompts.TARGETS)}.")
    system = prompts.render("system", language=target_of(target).language)
    prompt = prompts.rendered(name, **facts(brief), **asked)
    return (("system", system), ("user", prompt.text)), {"system": len(system), **prompt.parts}
