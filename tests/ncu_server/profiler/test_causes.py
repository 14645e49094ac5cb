"""Which instruction lost lanes and waiting at barriers are laid to."""

from ncu_server.profiler.causes import Executed, barrier_waits, lanes_lost


def code(*rows: tuple[str, int, int]) -> list[Executed]:
    """Instructions in SASS, executions by warp, and threads that take part in each."""
    return [Executed(text, warps, warps * lanes, warps * lanes, 0) for text, warps, lanes in rows]


def test_threads_that_are_elsewhere_are_laid_to_the_branch_that_sent_them_there() -> None:
    loop = [("FMUL R5, R5, R5", 100, 4), ("ISETP.NE.AND P0, PT, R4, 0x100, PT", 100, 4), ("@P0 BRA 0x7f40", 100, 4)]
    before = [("LDG.E R5, desc[UR4][R4.64]", 1, 32), ("BSSY B0, 0x7f70", 1, 32), ("@P0 BRA 0x7f60", 1, 32)]
    rows = code(*before, ("MOV R4, RZ", 1, 4), *loop, ("BSYNC B0", 1, 32))
    assert lanes_lost(rows) == [0, 0, 28 * 301, 0, 0, 0, 0, 0]


def test_both_sides_of_a_branch_are_laid_to_it_and_an_inner_one_to_its_own() -> None:
    then = [("FADD R1, R1, R2", 1, 20), ("@!P1 BRA 0x7f30", 1, 20), ("FMUL R1, R1, R1", 1, 5), ("BRA 0x7f60", 1, 20)]
    rows = code(("@P0 BRA 0x7f50", 1, 32), *then, ("FADD R1, R1, R3", 1, 12), ("EXIT", 1, 32))
    assert lanes_lost(rows) == [3 * 12 + 20, 0, 27, 0, 0, 0, 0]


def test_threads_that_leave_a_loop_early_are_lost_where_the_loop_goes_on() -> None:
    rows = code(("MOV R1, RZ", 1, 32), ("FFMA R1, R1, R1, R2", 10, 8), ("@P0 BRA 0x7f10", 10, 8), ("EXIT", 1, 32))
    assert lanes_lost(rows) == [0, 240, 240, 0]


def test_threads_with_a_false_predicate_are_lost_at_the_instruction_itself() -> None:
    guarded = Executed("@P0 BRA 0x7f90", 1, 32, 1, 0)
    body = Executed("FADD", 10, 310, 100, 0)
    assert lanes_lost([guarded, body]) == [31 + 10, 210]


def test_an_instruction_that_no_warp_came_to_loses_nothing() -> None:
    assert lanes_lost([Executed("@P0 BRA 0x7f90", 0, 0, 0, 0), Executed("MOV", 2, 64, 64, 0)]) == [0, 0]


def test_warps_that_wait_behind_a_barrier_wait_for_it() -> None:
    names = ("BAR.SYNC.DEFER_BLOCKING 0x0", "UMOV UR4, 0x400", "BSYNC B0", "@P0 BAR.SYNC 0x1", "LDS R5, [UR4]")
    rows = [Executed(name, 1, 32, 32, n) for n, name in enumerate(names, 1)]
    assert barrier_waits(rows) == [3, 0, 3, 9, 0]
