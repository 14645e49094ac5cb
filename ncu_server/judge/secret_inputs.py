"""Secret inputs of a problem: how they are made, when they are in memory, and what a candidate is given of them."""

from __future__ import annotations

import contextlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator

from ncu_server.judge.input_set import InputSet, Recipe
from ncu_server.judge.memory_plan import GIANT_BYTES, MemoryPlan
from ncu_server.judge.trusted import PREPARE_TIMEOUT_S, trusted
from ncu_server.sandbox.child import Child
from ncu_server.sandbox.shared_memory import Shared
from ncu_server.worker import timing_verbs, verbs
from ncu_server.worker.answers import How

UNSEEN = ((1 << 20, 8), (16 << 20, 2), (1 << 30, 1))  # bytes of an input set at most, and how many only timed calls see


class SecretInputs(ABC):
    """What a prepared problem draws, keeps and lends."""

    remakes = True
    """Whether a second draw under the same seed gives the same."""
    plan: MemoryPlan | None = None
    """What the device's memory allows; None where it is not planned."""

    @property
    def lean(self) -> bool:
        """Whether nothing may lie on the device before it is needed."""
        return self.plan is not None and self.plan.mode == "lean"

    @property
    @abstractmethod
    def eager(self) -> Child:
        """The process that runs the reference as it is."""

    @property
    @abstractmethod
    def drawn(self) -> InputSet:
        """What `get_inputs` gives."""

    @abstractmethod
    async def judge(self) -> Child:
        """The process that compares."""

    @abstractmethod
    def note(self, words: str) -> None:
        """Say something beside each verdict, once."""

    async def draw(self, inputs: Shared, variant: str, on_host: bool = False) -> Recipe:
        """What `variant` gives under a new secret seed; it lies on the device, where that shares memory, or `on_host`.
        Raises Refusal BAD_PROBLEM."""
        recipe = Recipe(verbs.Draw(variant, secrets.randbits(62), on_host))
        await self.make(recipe, inputs)
        return recipe

    async def make(self, recipe: Recipe, inputs: Shared) -> How:
        """Make inputs as a recipe tells; what they are. Raises Refusal BAD_PROBLEM."""
        if recipe.sharpen:
            sharpen = verbs.Sharpen(recipe.draw.variant, recipe.draw.input_seed, *recipe.sharpen)
            made = await trusted(self.eager, sharpen, [inputs])
            inputs.seal(made["inputs"])
            return made["how"]
        drawn = await trusted(self.eager, recipe.draw, [inputs])
        inputs.seal(recipe.changed(drawn["inputs"]))
        if drawn["note"]:
            self.note(drawn["note"])
        return "as drawn"

    async def draw_unseen(self, input_set: InputSet) -> None:
        """Draw the inputs that only timed calls see, in place of those there are; none of other shapes."""
        for inputs in input_set.unseen:
            inputs.close()
        input_set.unseen = []
        for _ in range(self.unseen_sets(input_set)):
            input_set.unseen.append(Shared("unseen"))
            await self.draw(input_set.unseen[-1], input_set.variant)
        layout = input_set.inputs.spec["tensors"]
        for other in [one for one in input_set.unseen if one.spec["tensors"] != layout]:
            input_set.unseen.remove(other)
            other.close()

    def unseen_sets(self, input_set: InputSet) -> int:
        """How many draws only timed calls see; large ones are among what a lean plan leaves out."""
        known = UNSEEN[:-1] if self.lean else UNSEEN
        return next((count for most, count in known if input_set.inputs.spec["bytes"] <= most), 0)

    @contextlib.asynccontextmanager
    async def present(self, input_set: InputSet) -> AsyncIterator[InputSet]:
        """The set with its inputs in memory; those of gigabytes are made for that time."""
        if input_set.inputs.fd < 0 and input_set.made:
            with _filled("inputs") as inputs:
                await self.make(input_set.made, inputs)
            input_set.inputs = inputs
        input_set.users += 1
        try:
            yield input_set
        finally:
            input_set.users -= 1
            if not input_set.users and self.forgets(input_set):
                input_set.inputs.close()

    @contextlib.asynccontextmanager
    async def known(self, input_set: InputSet) -> AsyncIterator[InputSet]:
        """The set with what is expected of it in memory; that of gigabytes is computed for that time."""
        if input_set.expected.fd < 0:
            async with self.present(input_set):
                spec, effects = input_set.inputs.spec, input_set.effects
                asked = verbs.ExpectAgain(spec, effects, input_set.slices)
                with _filled("expected") as expected:
                    expected.seal(await trusted(self.eager, asked, [input_set.inputs, expected]))
            input_set.expected = expected
        try:
            yield input_set
        finally:
            if self.forgets(input_set):
                input_set.expected.close()

    def forgets(self, input_set: InputSet) -> bool:
        """Whether inputs, and what is expected, are made anew at each use: they are large, and come out the same."""
        again = input_set.made is not None and input_set.inputs.on_device and self.remakes
        return again and (self.lean or is_giant_set(input_set))

    @contextlib.asynccontextmanager
    async def lent(self, inputs: InputSet | Shared) -> AsyncIterator[Shared]:
        """The inputs as one candidate may have them: the host's memory, which is sealed, or a copy of the device's."""
        with contextlib.closing(Shared("lent")) as copy:
            async with self.present(inputs) if isinstance(inputs, InputSet) else contextlib.nullcontext():
                own = inputs.inputs if isinstance(inputs, InputSet) else inputs
                if own.on_device:
                    await self.eager.ask(verbs.Lend(own.spec), [own, copy], PREPARE_TIMEOUT_S)
                    copy.seal(own.spec)
            yield copy if own.on_device else own

    @contextlib.asynccontextmanager
    async def lent_for_timing(self, input_set: InputSet) -> AsyncIterator[Shared]:
        """The same once the reference is staged on them: where memory is short they lie there alone."""
        if not self.lean:
            async with self.lent(input_set) as lent:
                yield lent
            return
        with contextlib.closing(Shared("lent")) as copy:
            copy.seal(await self.eager.ask(timing_verbs.LendStaged(), [copy], PREPARE_TIMEOUT_S))
            yield copy

    @contextlib.asynccontextmanager
    async def slot(self, size: int) -> AsyncIterator[Shared]:
        """Memory for what one candidate gives, of `size` bytes where it lies on the device."""
        with contextlib.closing(Shared("got")) as got:
            if self.drawn.inputs.on_device:
                await (await self.judge()).ask(verbs.Slot(size), [got], PREPARE_TIMEOUT_S)
            yield got


@contextlib.contextmanager
def _filled(name: str) -> Iterator[Shared]:
    """Memory that is filled inside, and closed where that fails: what is open holds something."""
    memory = Shared(name)
    try:
        yield memory
    except BaseException:
        memory.close()
        raise


def is_giant_set(input_set: InputSet) -> bool:
    """Whether inputs and what is compared are gigabytes, of which no more than needed may be held at once."""
    return input_set.inputs.spec["bytes"] + input_set.room > GIANT_BYTES
