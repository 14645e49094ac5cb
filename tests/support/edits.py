"""Changes of a source in a test."""


def edit(source: str, old: str, new: str, times: int = 1) -> str:
    """`source` with `old` replaced by `new`; fails unless `old` stands in it `times` times, and no other number.

    A `str.replace` that matches nothing leaves a test that tests nothing.
    """
    assert source.count(old) == times, f"{old!r} stands {source.count(old)} times, not {times}, in:\n{source}"
    return source.replace(old, new)
