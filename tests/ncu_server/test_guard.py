from ncu_server.guard import read
from tests.measuring import HONEST


def test_an_honest_kernel_is_not_turned_away_for_words_in_it() -> None:
    words = "# never caches, no fallback\nimport functools\ntry:\n    pass\nexcept ImportError:\n    pass\n"
    assert read(words + HONEST).rejected is None


def test_leads_are_listed_and_are_no_verdict() -> None:
    reading = read(HONEST.replace("return out", "out.data_ptr(); return out"))
    assert reading.rejected is None
    assert any("data_ptr" in lead for lead in reading.leads)


def test_a_module_that_only_calls_torch_is_rejected() -> None:
    assert read("import torch\nclass ModelNew(torch.nn.Module):\n    pass").rejected


def test_a_class_assigned_to_the_name_counts() -> None:
    assert read(HONEST.replace("class ModelNew", "class Mine") + "\nModelNew = Mine").rejected is None


def test_a_syntax_error_is_named_with_its_line() -> None:
    assert (read("x = (").syntax or "").startswith("line 1")


def test_a_builder_imported_under_another_name_counts() -> None:
    renamed = HONEST.replace(
        "import torch, torch.nn as nn, tvm_ffi.cpp",
        "import torch, torch.nn as nn\nfrom tvm_ffi.cpp import load_inline as make",
    )
    assert read(renamed.replace("tvm_ffi.cpp.load_inline", "make")).rejected is None
