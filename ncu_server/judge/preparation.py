"""What a problem is judged on: secret inputs as drawn, and others that the judge makes of them, each with what the
reference gives for it."""

from __future__ import annotations

import contextlib
import functools
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ncu_server.errors import Code, Refusal
from ncu_server.judge.input_set import InputSet, Recipe, same_effects
from ncu_server.judge.memory_plan import GIB
from ncu_server.judge.plain_values import Kept, Plain, Value, change, kept_note, others, plain_values, replaced
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.room import plan_memory
from ncu_server.judge.trusted import trusted
from ncu_server.sandbox.child import Child, ChildError
from ncu_server.sandbox.shared_memory import Shared, Spec
from ncu_server.worker import verbs
from ncu_server.worker.answers import Chosen, Expected

AGAIN, AGAIN_BYTES, AGAIN_S = 8, 32 << 20, 0.5  # further draws that are checked, all of them together
TWINS = 2  # of them, which differ from one another in few elements
FAR_S = 20.0  # for the reference to come to its end on inputs that are none of its own
MOST_PLAIN = 8  # plain values that are varied by themselves; of more, or beside large tensors, all at once

T = TypeVar("T")


async def prepare(prepared: PreparedProblem) -> None:
    """Draw inputs and compute what is expected. Raises Refusal BAD_PROBLEM with the problem's own fault."""
    for variant in await prepared.open():
        await _prepare(prepared, variant)


async def _prepare(prepared: PreparedProblem, variant: str) -> None:
    drawn = prepared.add(variant, "as drawn")
    drawn.made = await prepared.draw(drawn.inputs, variant)
    await plan_memory(prepared, drawn)
    first = await prepared.expect(drawn)
    await _require_the_same(prepared, drawn)
    if not prepared.remakes:
        await plan_memory(prepared, drawn)
    prepared.forget(drawn)
    _require_elements(prepared, drawn)
    drawn.effects["still"] = await _still(prepared, drawn)
    second = await _sharper(prepared, drawn, first)
    async with prepared.present(drawn):
        await _make_more(prepared, drawn, first, second)
    prepared.forget_all()


async def _still(prepared: PreparedProblem, drawn: InputSet) -> list[int]:
    """The inputs that timed calls get as drawn."""
    async with prepared.present(drawn):
        still = await trusted(prepared.eager, verbs.Still(drawn.inputs.spec), [drawn.inputs])
    if still:
        which = ", ".join(map(str, still))
        prepared.note(f"timed calls get input {which} as drawn: the reference fails where a few of its values change")
    return still


async def _make_more(prepared: PreparedProblem, drawn: InputSet, first: Expected, second: Expected | None) -> None:
    """What else the judge tries, beside the inputs as drawn and the sharper ones."""
    if prepared.target.warms_up:
        prepared.warm_up_inputs.append(Shared("rehearsal"))  # none of the secret ones
        await prepared.draw(prepared.warm_up_inputs[-1], drawn.variant, on_host=True)  # all candidates are given it
    await _draw_again(prepared, drawn, first)
    await _draw_far(prepared, drawn, first)
    await _vary_plain_values(prepared, drawn, first)
    if word := first["degenerate"]:
        await _constant(prepared, drawn, word, second)
    together = prepared.together(drawn.variant)
    for input_set in together:
        input_set.widen(together)


def _require_elements(prepared: PreparedProblem, drawn: InputSet) -> None:
    """Raises Refusal BAD_PROBLEM where there is nothing to compare, or nothing that it could hang on."""
    if not drawn.empty:
        return
    what = (
        f"no input of {drawn.variant} has an element, so what a kernel does with inputs cannot be checked"
        if drawn.elements[1]
        else f"nothing that Model.forward gives for {drawn.variant} has an element, so there is nothing to compare"
    )
    if drawn is prepared.drawn:
        raise Refusal(Code.BAD_PROBLEM, what, "give it inputs of at least one element")
    prepared.note(f"{what}; a kernel is called for the shapes that it gives, and not timed there")


async def _sharper(prepared: PreparedProblem, drawn: InputSet, first: Expected) -> Expected | None:
    """What is expected of inputs of other statistics; None where the reference gives no numbers for them."""
    sharp = prepared.add(drawn.variant, "sharper")
    draw = verbs.Draw(drawn.variant, secrets.randbits(62))
    seed, still = secrets.randbits(62), drawn.effects["still"]
    sharp.how = await prepared.make(Recipe(draw, (seed, still, None)), sharp.inputs)
    sharp.made = Recipe(draw, (seed, still, sharp.how))
    async with prepared.present(sharp):
        second = await _usable(prepared, sharp, first)
        prepared.forget(sharp)
    if not second:
        prepared.note("checked on inputs as drawn only: on sharper ones the reference gives no numbers")
    return second


async def _usable(prepared: PreparedProblem, input_set: InputSet, drawn: Expected) -> Expected | None:
    """What is expected of inputs that are not quite as drawn. None, and no such case, where the reference fails on
    them, gives no numbers where it gave some, or changes something else."""
    try:
        told = await prepared.expect(input_set)
    except Refusal:
        told = None
    if told and (told["finite"] or not drawn["finite"]) and same_effects(told["effects"], drawn["effects"]):
        return told
    prepared.drop(input_set)
    return None


async def _require_the_same(prepared: PreparedProblem, drawn: InputSet) -> None:
    """Find out whether a second draw under one seed gives the same, where inputs are made anew at each use, or may be
    when less memory is free."""
    demand = prepared.demands.get(drawn.variant)
    may = drawn.inputs.on_device and demand is not None and demand.working > GIB
    if not drawn.made or not (may or prepared.forgets(drawn)):
        return
    draw = drawn.made.draw
    asked = verbs.DrawsAgain(drawn.inputs.spec, draw.variant, draw.input_seed)
    prepared.remakes = await trusted(prepared.eager, asked, [drawn.inputs])


def _size(input_set: InputSet) -> int:
    return int(input_set.inputs.spec["bytes"] + input_set.expected.spec["bytes"])


async def _draw_again(prepared: PreparedProblem, first: InputSet, told: Expected) -> None:
    """Further draws of what is small and soon computed: what a flag or an index decides, few draws may spare."""
    began = time.monotonic()
    for n in range(min(AGAIN, AGAIN_BYTES // max(_size(first), 1))):
        if time.monotonic() - began > AGAIN_S:
            break
        input_set = prepared.add(first.variant, "drawn again")
        if n < TWINS:
            await _draw_alike(prepared, first, input_set)
            await _usable(prepared, input_set, told)
        else:
            await prepared.draw(input_set.inputs, input_set.variant)
            await prepared.expect(input_set)


async def _draw_alike(prepared: PreparedProblem, first: InputSet, input_set: InputSet) -> None:
    """Inputs that differ in few elements from others that are made so: a sample of them does not tell which."""
    asked = verbs.Mutate(first.inputs.spec, first.effects["still"], secrets.randbits(48))
    input_set.inputs.seal(await trusted(prepared.eager, asked, [first.inputs, input_set.inputs]))


async def _apart(prepared: PreparedProblem, work: Callable[[Child], Awaitable[T]]) -> T | None:
    """What `work` gives with a reference in a process of its own, for inputs of which nobody knows what it does with
    them. None where it fails or does not come back."""
    child = await prepared.device.fork_server.spawn("reference")
    with contextlib.suppress(ChildError), contextlib.closing(child), contextlib.closing(Shared("unused")) as unused:
        await child.ask(prepared.opening(None), [unused], FAR_S)
        return await work(child)
    return None


async def _expected(child: Child, input_set: InputSet) -> Expected:
    fds, asked = [input_set.inputs, input_set.expected], verbs.Expect(input_set.inputs.spec)
    return input_set.keep(await child.ask(asked, fds, FAR_S))


async def _draw_far(prepared: PreparedProblem, first: InputSet, told: Expected) -> None:
    """Small inputs far beyond those that were drawn, where the reference gives numbers for them: a sum that overflows
    and an exponential without its maximum taken off show."""
    if _size(first) > AGAIN_BYTES:
        return
    input_set = prepared.add(first.variant, "32 times as large")

    async def stretched(child: Child) -> Expected | None:
        asked = verbs.Stretch(first.inputs.spec, first.effects["still"])
        made = await child.ask(asked, [first.inputs, input_set.inputs], FAR_S)
        if not made:
            return None
        input_set.inputs.seal(made)
        return await _expected(child, input_set)

    found = await _apart(prepared, stretched)
    same = found and found["numbers"] and same_effects(found["effects"], told["effects"])
    if not same or None in input_set.units:
        prepared.drop(input_set)
    input_set.loosen()


async def _vary_plain_values(prepared: PreparedProblem, first: InputSet, told: Expected) -> None:
    """Numbers and flags among the inputs changed, one at a time where that is cheap, where the reference takes it."""
    if not (plain := plain_values(first.inputs.spec["structure"])):
        if not first.inputs.spec["tensors"]:
            raise Refusal(Code.BAD_PROBLEM, f"{first.variant} gives no input: every call gives the same")
        return
    chosen, kept = await _chosen(prepared, first, plain)
    apart = len(chosen) <= MOST_PLAIN and _size(first) <= AGAIN_BYTES
    for changes in [[one] for one in chosen] if apart else filter(None, [chosen]):
        if not await _with_plain_values(prepared, first, told, changes):
            kept += [Kept(one, "the reference cannot be compared with others") for one, _ in changes]
    if not first.inputs.spec["tensors"] and len(kept) == len(plain):
        words = f"no input of {first.variant} is a tensor, and none of its plain values can be varied"
        raise Refusal(Code.BAD_PROBLEM, f"{words}: every call gives the same, so a check says nothing")
    prepared.kept[first.variant] = [plain.index(one.plain) for one in kept]
    if kept:
        prepared.note(kept_note(kept))


async def _chosen(
    prepared: PreparedProblem, first: InputSet, plain: Sequence[Plain]
) -> tuple[list[tuple[Plain, Value]], list[Kept]]:
    """Another value for each that the reference takes one for, and the rest."""
    generator, chosen, kept = random.SystemRandom(), [], []
    for one in plain:
        if not (values := others(one.value, generator)):
            kept.append(Kept(one, "no number or flag"))
            continue
        structures = [replaced(first.inputs.spec["structure"], [(one.path, value)]) for value in values]

        async def choose(child: Child, structures: list[Any] = structures) -> Chosen:
            return await child.ask(verbs.Choose(first.inputs.spec, structures), [first.inputs], FAR_S)

        found = await _apart(prepared, choose)
        if found and found["taken"] is not None:
            chosen.append((one, values[found["taken"]]))
        else:
            kept.append(Kept(one, found["why"] if found else "the reference does not come back with others"))
    return chosen, kept


async def _with_plain_values(
    prepared: PreparedProblem, first: InputSet, told: Expected, changes: Sequence[tuple[Plain, Value]]
) -> bool:
    """Add the case of these changes; false where the reference does not do for it."""
    input_set = prepared.add(first.variant, "with another plain value")
    structure = replaced(first.inputs.spec["structure"], [(plain.path, value) for plain, value in changes])
    input_set.inputs.close()
    input_set.inputs, input_set.change = (
        first.inputs.again({**first.inputs.spec, "structure": structure}),
        change(changes),
    )
    if first.made:
        input_set.made = replace(first.made, structure=structure)
    async with prepared.present(input_set):
        found = await _apart(prepared, functools.partial(_expected, input_set=input_set))
        if found:
            prepared.forget(input_set)
    usable = found and (found["finite"] or not told["finite"]) and same_effects(found["effects"], told["effects"])
    if not usable:
        prepared.drop(input_set)
    return bool(usable)


async def _constant(prepared: PreparedProblem, drawn: InputSet, word: str, second: Expected | None) -> None:
    """Say that a constant would pass. Where it would on all inputs that are tried, rows without numbers show whether a
    kernel reads its inputs: not by what it makes of them, but by whether its output changes at all."""
    if second and not second["degenerate"]:
        prepared.note(f"nearly constant output: {word} would pass on inputs as drawn; checked on others as well")
        return
    prepared.note(f"constant output: {word} would pass on every input that the judge tries")
    holed = Shared("holed")

    async def punched(child: Child) -> Spec | None:
        asked = verbs.Hole(drawn.inputs.spec, secrets.randbits(62), drawn.effects["still"])
        return await child.ask(asked, [drawn.inputs, holed], FAR_S)

    if made := await _apart(prepared, punched):
        holed.seal(made)
        drawn.holed = holed
    else:
        holed.close()
