"""One file a tool; this is their table, in the order in which clients are shown them."""

from collections.abc import Callable

from ncu_server.tools import (
    compare_reports,
    compile,
    describe,
    disassemble,
    environment,
    evaluate,
    profile,
    query_metrics,
    read_report,
    sanitize,
    verify,
)
from ncu_server.tools.surface import Surface

TOOLS: tuple[Callable[[Surface], None], ...] = (
    environment.add,
    describe.add,
    compile.add,
    evaluate.add,
    verify.add,
    profile.add,
    read_report.add,
    query_metrics.add,
    compare_reports.add,
    disassemble.add,
    sanitize.add,
)
