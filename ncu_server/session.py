"""A problem prepared on a device: secret inputs, expected outputs, and the children that stand for the reference."""

from __future__ import annotations

import secrets
from typing import Any

from ncu_server.errors import Code, Refusal
from ncu_server.memory import Shared
from ncu_server.targets import Target
from ncu_server.zygote import Child, ChildDied, ChildFault, Zygote

BASELINES = ("eager", "compile")
PREPARE_TIMEOUT_S = 300.0
RUN_FILE_BYTES = 256 << 20  # what a candidate prints and keeps; its outputs come on top
COMPILE_TIMEOUT_S = 600.0


class Session:
    """Holds what the judge needs of one problem; the candidate's side never sees it, but for inputs and arguments."""

    def __init__(self, zygote: Zygote, problem: str, target: Target) -> None:
        self._zygote, self.problem, self.target = zygote, problem, target
        self.parameter_seed = secrets.randbits(31)
        self.arguments, self.inputs, self.expected = Shared("arguments"), Shared("inputs"), Shared("expected")
        self.outputs: list[dict[str, Any]] = []
        self.units: list[float | None] = []
        self.notes: list[str] = []
        self.users = 0
        self._children: list[Child] = []
        self._baselines: dict[str, Child] = {}

    async def prepare(self) -> None:
        """Draw inputs and compute what is expected. Raises Refusal BAD_PROBLEM with the problem's own fault."""
        eager = await self._open("eager")
        inputs = await self._trusted(eager, "draw", [self.inputs.fd], input_seed=secrets.randbits(62))
        self.inputs.seal(inputs)
        answer = await self._trusted(eager, "expect", [self.inputs.fd, self.expected.fd], inputs=inputs)
        self.expected.seal(answer["stored"])
        self.outputs, self.units = answer["outputs"], answer["units"]
        if answer["note"]:
            self.notes.append(answer["note"])
        if answer["zeros_pass"]:
            self.notes.append("degenerate problem: an output of zeros would pass")

    async def baseline(self, name: str) -> Child:
        """The child that runs the reference as `eager` or through `compile`; started at first use."""
        if name not in self._baselines:
            await self._open(name)
        return self._baselines[name]

    async def ask(self, verb: str, **arguments: Any) -> Any:
        """Ask the eager reference about its inputs; ChildFault passes through."""
        return await self._baselines["eager"].ask(verb, [self.inputs.fd], PREPARE_TIMEOUT_S, **arguments)

    async def judge(self) -> Child:
        """The process that compares; it never sees a candidate's code."""
        if "judge" not in self._baselines:
            self._baselines["judge"] = await self._spawn("judge")
        return self._baselines["judge"]

    async def candidate(self, built: str) -> Child:
        """A new child for a candidate, which may read the directory `built`; the caller closes it."""
        room = RUN_FILE_BYTES + 2 * self.expected.spec["bytes"]
        return await self._zygote.spawn("candidate", readable=[built], file_bytes=room)

    def close(self) -> None:
        for child in self._children:
            child.close()
        for memory in (self.arguments, self.inputs, self.expected):
            memory.close()

    async def _spawn(self, role: str) -> Child:
        child = await self._zygote.spawn(role)
        self._children.append(child)
        return child

    async def _open(self, name: str) -> Child:
        child = await self._spawn("reference")
        memory = self.arguments if name == "eager" else Shared("unused")
        opened = await self._trusted(
            child,
            "open",
            [memory.fd],
            source=self.problem,
            device=self.target.device,
            parameter_seed=self.parameter_seed,
            compiled=name == "compile",
        )
        if name == "eager":
            self.arguments.seal(opened["arguments"])
        else:
            memory.close()
        self._baselines[name] = child
        return child

    async def _trusted(self, child: Child, verb: str, fds: list[int], **arguments: Any) -> Any:
        try:
            return await child.ask(verb, fds, PREPARE_TIMEOUT_S, **arguments)
        except ChildFault as fault:
            raise Refusal(
                Code.BAD_PROBLEM, f"the problem fails in {STEPS[verb]}: {fault.kind}: {fault.text}"
            ) from fault
        except ChildDied as died:
            raise Refusal(Code.BAD_PROBLEM, f"the problem's process ended in {STEPS[verb]}: {died}") from died
        except TimeoutError:
            sentence = f"the problem needs more than {PREPARE_TIMEOUT_S:.0f} s in {STEPS[verb]}"
            raise Refusal(Code.BAD_PROBLEM, sentence) from None


STEPS = {
    "open": "loading (module, get_init_inputs or Model's constructor)",
    "draw": "get_inputs",
    "expect": "Model.forward",
}
