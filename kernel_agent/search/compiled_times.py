"""PyTorch's compiled times come while a model thinks and kernels are judged, or before anything is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kernel_agent.errors import Waiting
from kernel_agent.interfaces import Bench
from kernel_agent.run.events import BaselineTimed, Notice, Observer
from kernel_agent.run.tree import Record, Run
from kernel_agent.run.types import baseline_titles


@dataclass(frozen=True, slots=True)
class CompiledTimes:
    """Has the modes of torch.compile timed of which the run knows nothing yet; each is recorded as it comes.

    As with all that describes the problem, no budget is charged for it.
    """

    run: Run
    bench: Bench
    record: Callable[[Record], None]
    observe: Observer

    @property
    def beside(self) -> bool:
        """Whether they come while the search goes on: as the setting says, else where there are cores enough."""
        wanted = self.run.settings.compile_times
        return wanted == "beside" or (wanted == "auto" and self.run.description.device.compiles_beside)

    @asynccontextmanager
    async def coming(self) -> AsyncIterator[asyncio.Task[None]]:
        """Inside, a task is under way that ends once all are recorded, one after the other, the first mode first.

        Where they do not come beside the search they are there already. A search that ends because it waits for a
        person (Waiting) leaves them time to come; any other fault, or a stop, ends the task.
        """
        if not self.beside:
            await self._measure(self.run.description.unmeasured)
        task = asyncio.create_task(self._one_by_one())
        try:
            yield task
        except Waiting:
            await asyncio.wait({task})
            raise
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _one_by_one(self) -> None:
        for name in self.run.description.unmeasured:
            await self._measure((name,))

    async def _measure(self, names: Sequence[str]) -> None:
        if not names:
            return
        self.observe(Notice(f"timing {baseline_titles(names)}"))
        for baseline in await self.bench.baselines(self.run.problem, names):
            self.record(baseline)
            self.observe(BaselineTimed(baseline))
