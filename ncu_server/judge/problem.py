"""A problem prepared on a device: secret inputs, expected outputs, and the children that stand for the reference."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from typing import Any

from ncu_server.judge.facts import Facts
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.interleave import Rotation
from ncu_server.judge.memory_plan import Demand
from ncu_server.judge.modes import BASELINES, COMPILE_TIMEOUT_S, GRAPHED, UNGRAPHED, Sides, first_call_s
from ncu_server.judge.secret_inputs import SecretInputs, is_giant_set
from ncu_server.judge.trusted import PREPARE_TIMEOUT_S, trusted
from ncu_server.machine.device import Device
from ncu_server.rules import precision
from ncu_server.rules.precision import Name
from ncu_server.sandbox.child import Child, ChildError, ChildTimeout
from ncu_server.sandbox.shared_memory import Shared, WarmUp
from ncu_server.worker import answers, timing_verbs, verbs
from ncu_server.worker.answers import How

COMMON = ("leaves", "form", "returns", "is_plain", "parameters", "made", "mode")  # of what all calls of a problem share
OF_A_CALL = ("takes", "gives", "held", "leaves", "form")
RUN_FILE_BYTES = 256 << 20  # what a candidate prints and keeps; its outputs come on top
MOVED_BYTES = 4 << 30  # calls that take more are not made twice more to see how their outputs move
NARROW = ("tf32", "fp16", "bf16")  # of a reference, which a kernel may answer with float16 operands at least


class PreparedProblem(SecretInputs):
    """Holds what the judge needs of one problem; the candidate's side never sees it, but for inputs and arguments."""

    def __init__(self, device: Device, problem: str) -> None:
        self.device, self.problem, self.target = device, problem, device.target
        self.parameter_seed = secrets.randbits(31)
        self.training: bool | None = None  # the reference's mode, once it is known
        self.arguments = Shared("arguments")
        self.input_sets: list[InputSet] = []
        self.warm_up_inputs: list[Shared] = []
        self.notes: list[str] = []
        self.kept: dict[str, list[int]] = {}  # numbers of the plain values that no check varies, by variant
        self.facts: Facts | None = None  # once it was described
        self.demands: dict[str, Demand] = {}  # of one call, by variant, where the device's memory is planned
        self.compiling = asyncio.Lock()  # held by whoever compiles; never waited for with the device held
        self.uncompilable: dict[str, ChildError] = {}
        self.users = self._held_bytes = 0
        self._children: list[Child] = []
        self._baselines: dict[str, Child] = {}
        self._compiled: set[tuple[str, str]] = set()
        self._ahead: set[str] = set()  # compiled for each shape by a process that has ended
        self._stages: dict[str, tuple[str, Rotation]] = {}  # what each baseline was last staged on

    async def open(self) -> list[str]:
        """Start the reference; the names of the functions that give its inputs. Raises Refusal BAD_PROBLEM."""
        opened = await self._open("eager")
        self._held_bytes, self.training = int(opened["held_bytes"]), opened["training"]
        self.notes += [*self.device.fork_server.notes, *filter(None, [opened["note"]])]
        return list(opened["variants"])

    @property
    def eager(self) -> Child:
        """The process that runs the reference as it is."""
        return self._baselines["eager"]

    @property
    def timed(self) -> list[InputSet]:
        """The inputs as drawn, one case for each of the problem's functions that give inputs which are not empty."""
        return [input_set for input_set in self.input_sets if input_set.how == "as drawn" and not input_set.empty]

    @property
    def drawn(self) -> InputSet:
        """What `get_inputs` gives."""
        return self.input_sets[0]

    @property
    def warm_up(self) -> WarmUp | None:
        """What a candidate is called with before it is judged, where a first call compiles."""
        return self._warm_up() if self.target.warms_up else None

    async def rehearsal(self) -> WarmUp:
        """What a candidate is called with that builds in a call; drawn at first use. Raises Refusal BAD_PROBLEM."""
        if not self.warm_up_inputs:
            for variant in [input_set.variant for input_set in self.input_sets if input_set.how == "as drawn"]:
                self.warm_up_inputs.append(Shared("rehearsal"))  # none of the secret ones
                await self.draw(self.warm_up_inputs[-1], variant, on_host=True)  # all candidates are given it
        return self._warm_up()

    def _warm_up(self) -> WarmUp:
        return WarmUp(
            self.problem, self.target.device, self.parameter_seed, self.arguments, self.warm_up_inputs, self.training
        )

    @property
    def is_giant(self) -> bool:
        """Whether inputs and outputs are gigabytes, of which no more than needed may be held at once."""
        return self.lean or any(map(is_giant_set, self.timed))

    @property
    def held_rooms(self) -> int:
        """Bytes of the device that input sets, and what is expected, take now."""
        memories = [m for one in self.input_sets for m in (one.inputs, one.expected, one.holed, *one.unseen) if m]
        return sum(memory.room for memory in memories if memory.fd >= 0)

    @property
    def processes(self) -> int:
        """How many processes of ours it has."""
        return len(self._children)

    def forget(self, input_set: InputSet) -> None:
        """Let go of what is made anew when it is needed."""
        if self.forgets(input_set):
            input_set.expected.close()
            if not input_set.users:
                input_set.inputs.close()

    def forget_all(self) -> None:
        """The same of all input sets."""
        for input_set in self.input_sets:
            self.forget(input_set)

    async def release(self) -> None:
        """Let baselines go of what they hold for timing a problem of gigabytes: candidates need the room.

        One that keeps CUDA graphs ends, since their memory goes with its process alone."""
        for name in list(self._stages) if self.is_giant else ():
            if self._keeps_graphs(name):
                self.end_baseline(name)
            else:
                await self.unstage(name)

    def _keeps_graphs(self, name: str) -> bool:
        return self.is_giant and BASELINES[name] == GRAPHED

    async def unstage(self, name: str) -> None:
        """Let a baseline go of what it holds for timing. ChildError passes through."""
        if self._stages.pop(name, None):
            await self._baselines[name].ask(timing_verbs.Unstage(), timeout_s=PREPARE_TIMEOUT_S)

    async def clear(self) -> None:
        """Leave the device to whoever is next: nothing of gigabytes lies there once the lease is given up."""
        if self.is_giant:
            with contextlib.suppress(ChildError):  # one that has ended holds nothing either
                await self.release()
            self.forget_all()
            await self.device.fork_server.cleared()

    def opening(self, mode: str | None) -> verbs.OpenReference:
        """What a reference's process is opened with; `mode` is torch.compile's."""
        return verbs.OpenReference(self.problem, self.target.device, self.parameter_seed, mode, self.training)

    def note(self, words: str) -> None:
        """Say something beside each verdict, once."""
        if words not in self.notes:
            self.notes.append(words)

    def add(self, variant: str, how: How) -> InputSet:
        """A further case, still empty."""
        self.input_sets.append(InputSet(variant, how, Shared("inputs"), Shared("expected")))
        return self.input_sets[-1]

    def drop(self, input_set: InputSet) -> None:
        """Leave a case out."""
        self.input_sets.remove(input_set)
        input_set.close()

    async def expect(self, input_set: InputSet, effects: answers.Effects | None = None) -> answers.Expected:
        """What the reference gives for a case. Raises Refusal BAD_PROBLEM where it fails."""
        memories = [input_set.inputs, input_set.expected]
        answer = input_set.keep(await trusted(self.eager, verbs.Expect(input_set.inputs.spec, effects), memories))
        if answer["note"]:
            self.note(answer["note"])
        if answer["training"] != self.training:
            self.training = answer["training"]
            self.note("both sides run in eval mode: in training mode the reference draws random numbers")
        return answer

    def together(self, variant: str) -> list[InputSet]:
        """The input sets of a variant whose errors are comparable: far inputs have another condition."""
        return [one for one in self.input_sets if one.variant == variant and one.how != "32 times as large"]

    @property
    def arithmetic(self) -> Name | None:
        """The coarsest arithmetic that shows in what the reference errs as it runs; None where it gives no floats."""
        shown = [precision.of_reference(one) for one in self.drawn.precision if one]
        return precision.coarsest(shown) if shown else None

    async def exactly(self, input_set: InputSet) -> InputSet:
        """A case of what the eager side's kept call was given, with what is expected of that; the caller closes it."""
        kept = InputSet(input_set.variant, input_set.how, Shared("inputs"), Shared("expected"))
        try:
            kept.inputs.seal(await trusted(self.eager, timing_verbs.KeptInputs(), [kept.inputs]))
            if self.lean:
                await self.unstage("eager")
            await self.expect(kept, effects=input_set.effects)
            kept.widen([kept, *self.together(kept.variant)])
        except BaseException:
            kept.close()
            raise
        return kept

    async def baseline(self, name: str) -> Child:
        """The child that runs the reference as `eager` or through `compile`; started at first use."""
        if name not in self._baselines:
            await self._open(name)
        return self._baselines[name]

    async def trace(self) -> answers.Traced:
        """The graph; ChildFault passes through."""
        async with self.present(self.drawn):
            inputs = self.drawn.inputs
            return await self.eager.ask(verbs.Trace(inputs.spec), [inputs], PREPARE_TIMEOUT_S)

    async def work(self, input_set: InputSet) -> answers.Work:
        """What a case must move and compute at least; counted at first use. ChildFault passes through."""
        if input_set.work:
            return input_set.work
        async with self.present(input_set):
            inputs = input_set.inputs
            work = await self.eager.ask(verbs.CountWork(inputs.spec), [inputs], PREPARE_TIMEOUT_S)
        input_set.work = {**work, "narrow": work["narrow"] or self.arithmetic in NARROW}
        return input_set.work

    async def moved(self, input_set: InputSet) -> list[float]:
        """How far what is compared of a case moves where operands of products are rounded; asked at first use, and not
        of calls that take gigabytes. See verbs.Moved. ChildFault passes through."""
        taken = input_set.memory["device_bytes"] if input_set.memory else 0
        if input_set.inputs.spec["bytes"] + taken > MOVED_BYTES:
            return []
        if input_set.moved is None:
            async with self.present(input_set):
                asked = verbs.Moved(input_set.inputs.spec, input_set.effects)
                input_set.moved = await self.eager.ask(asked, [input_set.inputs], PREPARE_TIMEOUT_S)
        return input_set.moved

    async def contract(self) -> dict[str, Any]:
        """What calls take and give: those of all input sets, and what they have in common; see worker.contract."""
        found = []
        for input_set in self.timed:
            asked = verbs.Contract(input_set.inputs.spec, self.kept.get(input_set.variant, []))
            async with self.present(input_set):
                found.append(await self.eager.ask(asked, [input_set.inputs], PREPARE_TIMEOUT_S))
        calls = [{name: value for name, value in one.items() if name in OF_A_CALL} for one in found]
        common, *others = ({name: value for name, value in one.items() if name in COMMON} for one in found)
        alike = all(one == common for one in others)
        effects = self.drawn.effects
        changes = bool(effects["inputs"] or effects["buffers"])
        return common | {"calls": calls, "changes": changes, "is_plain": common["is_plain"] and alike}

    async def kernels(self, name: str) -> list[str]:
        """What a baseline of torch.compile launches, in order; ChildError passes through."""
        return await self._baselines[name].ask(verbs.Kernels(), timeout_s=PREPARE_TIMEOUT_S)

    async def peaks(self) -> dict[str, float | None]:
        """What the device reaches; ChildError passes through."""
        return await self.eager.ask(verbs.Peaks(), timeout_s=PREPARE_TIMEOUT_S)

    async def stage(self, child: Child, inputs: Shared, effects: answers.Effects, timeout_s: float) -> answers.Staged:
        """Let a candidate's child set up a case's inputs, which are its own, for timing."""
        asked = timing_verbs.StageLent if self.lean else timing_verbs.Stage
        return await child.ask(asked(inputs.spec, effects), [inputs], timeout_s)

    @property
    def broken(self) -> bool:
        """Whether a process of this session has ended, so that it must be prepared anew."""
        return any(child.closed for child in self._children)

    async def sides(self, names: Sequence[str], input_set: InputSet) -> Sides:
        """The baselines, staged for timing, without a torch.compile that fails. Raises ChildError where eager does."""
        staged: dict[str, Child] = {}
        failed: dict[str, ChildError] = {}
        rotation = Rotation(1, True, False)
        for name in names:
            if name in self.uncompilable:
                failed[name] = self.uncompilable[name]
                continue
            try:
                staged[name], rotation = await self._staged(name, input_set)
            except ChildError as fault:
                if name == "eager" or fault.child.abandoned:
                    raise
                failed[name] = fault
                self.end_baseline(name)
        return Sides(staged, rotation, failed)

    async def _staged(self, name: str, input_set: InputSet) -> tuple[Child, Rotation]:
        child = await self.baseline(name)
        if BASELINES[name] and (name, input_set.variant) not in self._compiled:
            self._stages[name] = input_set.variant, await self.rotation(child, input_set, COMPILE_TIMEOUT_S)
            await child.ask(timing_verbs.Block(nonce=0, count=1), timeout_s=first_call_s(name))
            self._compiled.add((name, input_set.variant))
        if self._stages.get(name, ("",))[0] != input_set.variant:
            self._stages.pop(name, None)  # it is gone, whether or not the next one comes to stand
            self._stages[name] = input_set.variant, await self.rotation(child, input_set, PREPARE_TIMEOUT_S)
        return child, self._stages[name][1]

    async def rotation(self, child: Child, input_set: InputSet, timeout_s: float) -> Rotation:
        """Let a process of ours set up an input set for timing; how its inputs rotate. ChildError passes through."""
        spec, effects = input_set.inputs.spec, input_set.effects
        if self.lean and (made := input_set.made):
            asked = timing_verbs.StageDrawn(spec, effects, made.draw.variant, made.draw.input_seed)
            return Rotation(**await child.ask(asked, timeout_s=timeout_s))
        async with self.present(input_set):
            return Rotation(**await child.ask(timing_verbs.Stage(spec, effects), [input_set.inputs], timeout_s))

    def end_baseline(self, name: str) -> None:
        """End a baseline's process, and with it what it holds of the device."""
        self._stages.pop(name, None)
        if child := self._baselines.pop(name, None):
            child.close()
            self._children.remove(child)
        self._compiled = {one for one in self._compiled if one[0] != name}

    def gives_up(self, name: str, fault: ChildError) -> None:
        """A baseline is not timed. One that tunes for too long takes along the mode that tunes alike."""
        self.uncompilable[name] = fault
        if isinstance(fault, ChildTimeout) and name == UNGRAPHED:
            self.uncompilable.setdefault(GRAPHED, fault)

    def loses(self, fault: ChildError) -> bool:
        """Give up the mode of torch.compile whose process failed; false where it is another's, or a call given up."""
        for name in filter(BASELINES.get, self._baselines):
            if self._baselines[name] is fault.child and not fault.child.abandoned:
                self.gives_up(name, fault)
                self.end_baseline(name)
                return True
        return False

    def has_compiled(self, name: str) -> bool:
        """Whether a baseline of torch.compile has compiled for each input shape, or cannot."""
        shapes = {(name, input_set.variant) for input_set in self.timed}
        return name in {*self.uncompilable, *self._ahead} or (name in self._baselines and shapes <= self._compiled)

    async def compiled_child(self, name: str) -> Child:
        """A child of a baseline that is still to compile; the caller closes it or has it adopted. Raises Refusal."""
        child = await self.device.fork_server.spawn("reference")
        try:
            with contextlib.closing(Shared("unused")) as memory:
                await trusted(child, self.opening(BASELINES[name]), [memory])
        except BaseException:
            child.close()
            raise
        return child

    def adopt(self, name: str, child: Child, rotation: Rotation | None) -> None:
        """Take a child that has compiled for each input shape, unless there is one by now; where it has a rotation, it
        is staged on the last. Of one that would keep CUDA graphs only the caches stay, where the next finds its code.
        """
        if name in self._baselines or self._keeps_graphs(name):
            child.close()
            self._ahead.add(name)
            return
        self._children.append(child)
        self._baselines[name] = child
        if rotation:
            self._stages[name] = self.timed[-1].variant, rotation
        self._compiled |= {(name, input_set.variant) for input_set in self.timed}

    async def judge(self) -> Child:
        """The process that compares; it never sees a candidate's code."""
        if "judge" not in self._baselines:
            self._baselines["judge"] = await self._spawn("judge")
        return self._baselines["judge"]

    async def candidate(self, built: str) -> Child:
        """A new child for a candidate, which may read the directory `built`; the caller closes it."""
        room = (
            RUN_FILE_BYTES
            + 2 * self._held_bytes
            + 2 * max(input_set.expected.spec["bytes"] for input_set in self.input_sets)
        )
        return await self.device.fork_server.spawn("candidate", readable=[built], file_bytes=room)

    def close(self) -> None:
        for child in self._children:
            child.close()
        self.arguments.close()
        for input_set in self.input_sets:
            input_set.close()
        for inputs in self.warm_up_inputs:
            inputs.close()

    async def _spawn(self, role: str) -> Child:
        child = await self.device.fork_server.spawn(role)
        self._children.append(child)
        return child

    async def _open(self, name: str) -> answers.Opened:
        child = await self._spawn("reference")
        memory = self.arguments if name == "eager" else Shared("unused")
        opened = await trusted(child, self.opening(BASELINES[name]), [memory])
        if name == "eager":
            self.arguments.seal(opened["arguments"])
        else:
            memory.close()
        self._baselines[name] = child
        return opened
