"""A module tried by itself by the server: one process, and the device held for its use alone."""

from pathlib import Path

import pytest

from ncu_server.judge.problems import Workshop
from ncu_server.judge.verify import VerifyRequest, verify
from ncu_server.machine.tickets import TICKET
from ncu_server.wire.evaluation import ModuleCheck
from tests.support.edits import edit
from tests.support.measuring import SCALE_ADD, opened, server_parameters

MODULE = edit(SCALE_ADD, "class Model(", "class ModelNew(")
FORWARD = "    def forward(self, x, y):\n"


async def quiet(message: str, *, ahead: int | None = None) -> None:
    pass


async def checks(workshop: Workshop, module: str, timeout_s: float = 120.0) -> dict[str, ModuleCheck]:
    found = await verify(workshop.machine, VerifyRequest(module, SCALE_ADD, "cpu", timeout_s), quiet)
    return {check.name: check for check in found.checks}


async def test_one_process_builds_the_module_and_uses_it_with_the_device_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCU_SERVER_LEASES", str(tmp_path / "queues"))
    kinds: dict[str, set[str]] = {}

    async def progress(_: float, __: float | None, message: str | None) -> None:
        names = [path.name for path in (tmp_path / "queues").glob("*/*")]
        there = {found[2] for name in names if (found := TICKET.fullmatch(name))}
        kinds[message or ""] = kinds.get(message or "", set()) | there

    asked = {"source": "import os; print(os.getpid())\n" + MODULE, "problem": SCALE_ADD, "target": "cpu"}
    async with opened(server_parameters(tmp_path)) as server:
        answer = await server.client.call_tool("verify_module", asked, progress_callback=progress)
    assert not answer.is_error and answer.structured_content, answer.content
    found = {check["name"] for check in answer.structured_content["checks"] if check["ok"]}
    assert found == {"builds", "agrees", "state_dict", "to", "compile"}
    assert (kinds["building the module by itself"], kinds["using the module by itself"]) == ({"shared"}, {"alone"})


@pytest.mark.asyncio(loop_scope="session")
async def test_what_does_not_build_is_not_used(workshop: Workshop) -> None:
    found = await checks(workshop, "raise ValueError('no')\n" + MODULE)
    assert list(found) == ["builds"] and found["builds"].why == "ValueError: no"


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("where", "does", "name", "why"),
    [
        ("import", "import os; os._exit(7)", "builds", "its process ended with exit code 7"),
        ("import", "import threading; threading.Event().wait()", "builds", "it took longer than 5 s"),
        (
            "import",
            "import os, pathlib; pathlib.Path.open = lambda *_, **__: os._exit(7)",
            "agrees",
            "its process ended",
        ),
        ("forward", "import os; os._exit(7)", "agrees", "its process ended with exit code 7"),
        ("forward", "import threading; threading.Event().wait()", "agrees", "it took longer than 5 s"),
    ],
)
async def test_the_trial_in_which_it_ends_or_hangs_has_failed(
    workshop: Workshop, where: str, does: str, name: str, why: str
) -> None:
    changed = f"{does}\n{MODULE}" if where == "import" else edit(MODULE, FORWARD, f"{FORWARD}        {does}\n")
    found = await checks(workshop, changed, 120.0 if "exit" in does else 5.0)
    assert [check for check in found.values() if check.ok is False] == [found[name]]
    assert found[name].why.startswith(why)
