"""What a run keeps of the judge's answer."""

from kernel_agent.bench.answers import EvaluateAnswer, parse

WRONG = {
    "status": "wrong",
    "log": "on inputs as drawn: output 0 is off",
    "error": 6800.0,
    "allowed": 3200.0,
    "arithmetic": "bf16",
    "precision": "The kernel is as exact as bfloat16.",
}


def test_values_that_are_too_far_off_are_said_to_be_of_which_arithmetic() -> None:
    kept = parse(EvaluateAnswer, WRONG).evaluation(with_warnings=False)
    assert kept.log.splitlines() == [WRONG["log"], WRONG["precision"]]
    assert (kept.error, kept.allowed, kept.arithmetic) == (6800, 3200, "bf16")


def test_of_another_fault_the_arithmetic_is_not_said() -> None:
    for change in ({"error": 3.0}, {"arithmetic": None}, {"error": None}):
        assert parse(EvaluateAnswer, WRONG | change).evaluation(with_warnings=False).log == WRONG["log"]


def test_where_an_answer_does_not_say_what_is_allowed_it_is_64_units() -> None:
    old = {name: WRONG[name] for name in ("status", "log", "error")}
    assert parse(EvaluateAnswer, old).evaluation(with_warnings=False).allowed == 64
