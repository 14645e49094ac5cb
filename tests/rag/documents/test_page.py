import pytest

from rag.documents.page import parse, problems, serves_arch, serves_language
from rag.errors import LibraryError

FRONT = "id: a\ntitle: A page\narchs: [sm_80+]\nbottlenecks: dram-bw\n"


def test_front_matter_is_read_from_markdown_and_from_comments_of_either_kind() -> None:
    stars = "\n".join(f" * {line}" for line in FRONT.splitlines())
    hashes = "\n".join(f"# {line}" for line in FRONT.splitlines())
    for path, text in [
        ("a.md", f"---\n{FRONT}---\nbody\n"),
        ("a.cu", f"/* ---\n{FRONT}--- */\nbody\n"),
        ("a.cpp", f"/* ---\n{stars}\n * --- */\nbody\n"),
        ("a.py", f"# ---\n{hashes}\n# ---\nbody\n"),
    ]:
        page = parse(path, text)
        assert (page.id, page.title, page.archs, page.bottlenecks) == ("a", "A page", ("sm_80+",), ("dram-bw",)), path
        assert page.body == "body\n", path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no front matter\n", "no front matter"),
        ("---\nid: [a\n---\n", "not valid YAML"),
        ("---\njust words\n---\n", "not a list of"),
        ("---\ntitle: A\n---\n", "has no id"),
        ("---\nid: a\ntitle: A\narchs: [{sm: 90}]\n---\n", "archs must be a plain list"),
    ],
)
def test_bad_front_matter_is_an_error_that_names_the_file(text: str, said: str) -> None:
    with pytest.raises(LibraryError, match=rf"^bad\.md: .*{said}"):
        parse("bad.md", text)


@pytest.mark.parametrize(
    ("archs", "wanted", "serves"),
    [
        (("any",), "sm_90", True),
        ((), "gfx942", True),
        (("sm_80+",), "sm_90", True),
        (("sm_80+",), "sm_75", False),
        (("sm_90a",), "sm_90", True),
        (("sm_90a",), "sm_100", False),
        (("sm_100a",), "sm_90", False),
        (("sm_80",), "sm_86", False),
        (("cpu",), "x86_64-avx2", True),
        (("cpu",), "aarch64", True),
        (("cpu",), "sm_90", False),
        (("sm_70+", "cpu"), "x86_64", True),
        (("gfx942",), "gfx942", True),
        (("sm_70+",), "gfx942", False),
    ],
)
def test_an_architecture_admits_only_pages_that_hold_for_it(archs: tuple[str, ...], wanted: str, serves: bool) -> None:
    assert serves_arch(archs, wanted) is serves


def test_a_misspelt_filter_is_refused_instead_of_opening_up() -> None:
    with pytest.raises(LibraryError, match="unknown architecture 'hopper'"):
        serves_arch((), "hopper")
    with pytest.raises(LibraryError, match=r"unknown language 'c\+\+'"):
        serves_language((), "c++")


def test_the_validator_names_twins_unknown_tags_and_gaps() -> None:
    one = parse("docs/a.md", "---\nid: a\ntitle: A\nbottlenecks: [slow]\nfamilies: [norm]\narchs: [hopper]\n---\n")
    two = parse("kernels/x/level_01.cu", "/* ---\nid: a\ntitle: A\narchs: [any]\nfamilies: [norm]\n--- */\n")
    found = problems([one, two])
    assert found[0] == "id 'a' is used by 2 files"
    assert "docs/a.md: bottlenecks has 'slow', which is not in the closed list" in found
    assert "docs/a.md: sources is missing" in found
    assert "docs/a.md: archs has 'hopper'; say any, cpu, sm_80+, sm_90 or gfx942" in found
    assert [fault for fault in found if fault.startswith("kernels")] == [
        "kernels/x/level_01.cu: bottlenecks is missing",
        "kernels/x/level_01.cu: languages is missing",
    ]
