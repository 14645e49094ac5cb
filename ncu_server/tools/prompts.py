"""What agents are told: the instructions of the server and two ways to work with it, as prompts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ncu_server.tools.surface import Surface

INSTRUCTIONS = """Judges and examines GPU and CPU kernels for PyTorch modules. Work in this order:
1. check_environment: which targets and tools this machine has.
2. describe_problem: the traced graph, the work counted, how fast PyTorch is, and the limit that no kernel can beat.
3. compile_kernel (CUDA, needs no GPU): the compiler's words by line, registers, shared memory and spills; a build_id.
4. evaluate_kernel: right or not, how fast, against which baseline. A wrong or slow kernel is a normal result with a
   status; an error means that the call itself could not be served: it starts with a code and says what to do.
5. Where it is wrong: sanitize_kernel. Where it is slow: profile_kernel, query_metrics, disassemble. Then go to 3.
Only evaluate_kernel's times are a score. Handles (build_id, report_id) stay valid when the server is started anew.
The server runs the code that it is given. Offer it only to those who may run code on this machine."""

DIAGNOSE = """Find out why this {target} kernel is {complaint}, and say what to change. Do not guess: each claim
rests on a number from a tool, named with it.

1. evaluate_kernel with target `{target}`. Is it right? If its status is not `passed`, the log says where it fails;
   for wrong values or crashes on CUDA call sanitize_kernel with memcheck, then racecheck and initcheck.
2. Compare its time with `limit_us`: below twice the limit little is left to gain; say so.
3. profile_kernel, if the tool is there: what bounds it, the hot lines, the rules with the largest speed-up estimate.
   Otherwise compile_kernel: spills, registers, shared memory; then disassemble: width of global loads, bank-conflicted
   or local memory traffic, missing tensor-core instructions.
4. Name the one change with the largest expected gain, the line that it applies to, and the number that will show it.

The problem:
```python
{problem}
```
The candidate:
```python
{candidate}
```"""

OPTIMIZE = """Write a {target} kernel that replaces `Model` in the problem below and is faster than PyTorch.

1. check_environment, then describe_problem with target `{target}`: note `fair_baseline` (the time to beat) and
   `limit_us` (the time that cannot be beaten).
2. Write `ModelNew`: same constructor and forward as `Model`, own kernels through `load_inline`.
3. evaluate_kernel. On `build_error` or `wrong` read the log, change one thing, evaluate again.
4. When it passes, find what limits it (profile_kernel, or compile_kernel and disassemble) and write the next version
   for that reason alone. Keep the fastest that passed; go back to it where a change does not help.
5. Stop after {rounds} rounds, or within 10 % of `limit_us`. Then evaluate_kernel once more with `fresh` true and
   `baselines` ["eager", fair_baseline]: only this verdict counts. Report it with its interval, also where it is
   `inconclusive` or slower.

Do not look for ways around the judge: library calls behind a thin kernel, remembered outputs and skipped work are
found and rejected.

The problem:
```python
{problem}
```"""


def add(mcp: Surface) -> None:
    """Register both prompts."""

    @mcp.prompt(title="Diagnose a kernel")
    def diagnose_kernel(
        problem: Annotated[str, Field(description="PyTorch source with `Model`, `get_inputs`, `get_init_inputs`")],
        candidate: Annotated[str, Field(description="module with `ModelNew`")],
        target: Annotated[str, Field(description="`cpu`, `cuda` or `triton`")] = "cuda",
        complaint: Annotated[str, Field(description="`slow`, `wrong`, or in your words")] = "slow",
    ) -> str:
        """Why is this kernel slow or wrong, and what should change first?"""
        return DIAGNOSE.format(problem=problem, candidate=candidate, target=target, complaint=complaint)

    @mcp.prompt(title="Optimize a module")
    def optimize_loop(
        problem: Annotated[str, Field(description="PyTorch source with `Model`, `get_inputs`, `get_init_inputs`")],
        target: Annotated[str, Field(description="`cpu`, `cuda` or `triton`")] = "cuda",
        rounds: Annotated[str, Field(description="how many versions to write at most")] = "6",
    ) -> str:
        """Write a kernel, have it judged, find what limits it, and go round until nothing is left to gain."""
        return OPTIMIZE.format(problem=problem, target=target, rounds=rounds)
