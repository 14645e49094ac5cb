"""Any module that is traced is cut: kernels of ours for what they cover, PyTorch's calls for the rest, in one file."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import Kernel, Plan
from kernel_agent.proposers.regions.rewrite import RULES
from kernel_agent.proposers.regions.rising import TITLE as RISES
from kernel_agent.proposers.regions.works import Regional, work_of
from kernel_agent.proposers.templates.arithmetic import covered
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Ref, Spec, parse
from kernel_agent.proposers.templates.lowering import lower, names
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import TARGETS
from kernel_agent.run.regions import Regions
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.regions.modules import MODULES, source
from tests.support.emitted import all_judged, compiled_by_nvcc, on_cpu

HERE = Path(__file__).parent
CPU = Device("cpu", "a processor", "x86_64-avx2", 2, 20.0)
GPU = Device("cuda", "a GPU", "sm_90", 0, 2600.0)


GRAPHS: dict[str, Any] = json.loads((HERE / "graphs.json").read_text())


def judged(candidates: dict[str, str], folder: Path) -> dict[str, str]:
    """What is wrong with the candidates, by name."""
    cases = [{"name": name, "source": source(name), "candidate": text} for name, text in candidates.items()]
    return all_judged(cases, folder)


def graph(name: str) -> Graph:
    return parse(GRAPHS[name])


def written(name: str, device: Device, start: int = 0) -> str:
    work = work_of(GRAPHS[name], device)
    return work.write(source(name), work.space.starts[start % len(work.space.starts)])


def ops(plan: Plan) -> list[list[str]]:
    """Each step's operators: of a kernel all that it stands for."""
    names = [list(step.nodes) if isinstance(step, Kernel) else [step.name] for step in plan.steps]
    return [[plan.node(name).op.split(".")[1] for name in step] for step in names]


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 4))])
def test_modules_with_regions_equal_pytorch_and_leave_its_buffers(tmp_path: Path, part: int) -> None:
    chosen = list(MODULES)[part::4]
    assert judged({name: written(name, CPU, n) for n, name in enumerate(chosen)}, tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
def test_modules_for_a_gpu_equal_pytorch_in_emulation(tmp_path: Path, part: int) -> None:
    names = ["conv_tail", "channel_softmax", "batch_norm_in_training", "two_folds", "instance_norm", "attention"]
    names += ["convolutions_in_a_row", "space_with_channels_last", "pools_of_channels_last", "folds_of_channels_last"]
    names += ["layers_joined", "pools_in_space", "softmax_of_channels"]
    chosen = names[part::3]
    assert judged({name: on_cpu(written(name, GPU)) for name in chosen}, tmp_path) == {}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("name", "spilled"),
    [
        ("channel_softmax", 0),
        ("space_with_channels_last", 0),
        ("convolutions_in_a_row", 96),  # of a row that 1,024 threads keep in 64 registers each
        ("group_norm_of_long_rows", 0),
        ("attention", 0),
    ],
)
def test_kernels_of_one_module_compile_together(tmp_path: Path, name: str, spilled: int, arch: str) -> None:
    file = tmp_path / "kernels.cu"
    file.write_text(re.search(r'_source = r"""\n(.*?)"""', written(name, GPU), re.DOTALL)[1])  # type: ignore[index]
    told = re.findall(r"(\d+) bytes spill stores", compiled_by_nvcc(file, arch))
    assert told and max(map(int, told)) <= spilled


def test_a_bias_moves_out_of_the_convolution_into_the_kernel_behind_it() -> None:
    moved, kept = (cut(graph("conv_tail"), bias=bias, long_rows=False) for bias in (True, False))
    assert ops(moved) == [["conv2d"], ["add", "relu", "mul", "add"]]
    assert ops(kept) == [["conv2d"], ["relu", "mul", "add"]]
    [call] = [step for step in moved.steps if not isinstance(step, Kernel)]
    assert call.args[2] is None


def test_a_convolution_by_windows_of_three_is_a_kernel_or_the_library_s() -> None:
    work = work_of(GRAPHS["windows_of_three_beside"], CPU)
    assert isinstance(work, Regional) and work.regions == Regions(2)
    starts = work.space.starts
    assert [start["convolution"] for start in starts[:2]] == ["kernel", "library"]
    ours, theirs = (work.write(source("windows_of_three_beside"), start) for start in starts[:2])
    assert "PAD = 2;" in ours and "torch.nn.functional.conv2d(" not in ours
    assert "torch.nn.functional.conv2d(" in theirs


@pytest.mark.parametrize("name", ["transposed_in_space_alone", "transposed_and_normed", "other_pools"])
def test_what_no_kernel_reads_well_stays_the_call_that_it_was(name: str) -> None:
    rules = cut(graph(name), bias=False, long_rows=False, kinds=frozenset({"cpu"})).rules
    assert rules == ()


@pytest.mark.parametrize("name", ["transposed", "transposed_in_space", "pools", "windows_of_three"])
def test_rules_for_a_processor_do_not_hold_on_a_gpu(name: str) -> None:
    work = work_of(GRAPHS[name], GPU)
    assert isinstance(work, Regional) and not work.plan({}).rungs
    assert not {title for title, _, kind in RULES if kind in ("cpu", "winograd")} & set(work.plan({}).rules)


def last(name: str, **how: Any) -> Plan:
    return cut(graph(name), bias=True, long_rows=True, kinds=frozenset({"last"}), **how)


def test_between_two_convolutions_nobody_changes_the_layout() -> None:
    plan = last("convolutions_in_a_row")
    found = [op for step in ops(plan) for op in step]
    assert found.count("channels_last") == 1 and found.count("channels_first") == 1
    assert [op for op in found if op.startswith(("conv", "max_pool"))] == [
        "conv2d_last", "conv2d_last", "max_pool2d_last", "conv2d_last",
    ]  # fmt: skip


def test_what_returns_has_channels_first_in_memory() -> None:
    for name in ("conv_tail", "space_with_channels_last", "pools_of_channels_last", "layers_joined"):
        plan = last(name)
        wide = [name for name in plan.graph.outputs if len(plan.specs[name].shape) > 3]
        assert wide and all(names(plan.node(name).op)[0] not in ("permute", "view") for name in wide)


def test_convolutions_of_groups_keep_channels_first_and_those_by_channel_do_not() -> None:
    calls = [step for step in last("layers_joined").steps if isinstance(step, Node)]
    assert [names(call.op)[0] for call in calls if "conv" in call.op] == ["conv2d_last", "conv2d_last", "conv2d"]
    assert ["depthwise2d_last", "add", "relu"] in ops(last("layers_joined"))


def test_a_softmax_that_returns_reads_channels_last_and_writes_channels_first() -> None:
    [kernel] = [k for k in last("softmax_of_channels").kernels if "softmax" in k.nodes]
    assert isinstance(kernel.program, Program) and kernel.program.strided
    assert re.search(r"s\d+\[threadIdx.x % ROWS_PER_BLOCK \* PITCH \+ c \+ j\]", written("softmax_of_channels", GPU))


def test_a_module_that_changes_an_input_in_place_keeps_its_layout() -> None:
    plan = last("changes_its_input")
    assert not any(op.endswith("_last") for step in ops(plan) for op in step) and plan.kernels


def test_a_norm_that_no_kernel_covers_stays_the_call_that_it_was() -> None:
    def without_folds(region: Graph) -> Routine:
        if any(names(node.op)[0] == "mean" for node in region.nodes):
            raise NotCovered("no folds here.")
        return covered(region)

    found = ops(last("convolutions_in_a_row", build=without_folds))
    assert ["batch_norm"] in found and ["relu"] in found
    assert sum(step == ["conv2d_last"] for step in found) == 3


def test_a_layout_is_a_gene_and_the_first_one_moves_the_fewest_bytes() -> None:
    work = work_of(GRAPHS["convolutions_in_a_row"], GPU)
    assert isinstance(work, Regional)
    assert [start["layout"] for start in work.space.starts[:2]] == ["last", "first"]
    assert "torch.channels_last" in written("conv_tail", GPU) and "torch.channels_last" not in written("conv_tail", CPU)


def test_a_choice_that_leaves_no_kernel_is_not_written() -> None:
    alone = work_of(GRAPHS["convolution_alone"], GPU)
    assert isinstance(alone, Regional)
    with pytest.raises(NotCovered, match="every call"):
        alone.write(source("convolution_alone"), {**alone.space.starts[0], "layout": "first"})
    assert "layout" not in alone.space.starts[0]


def test_a_depthwise_convolution_is_a_kernel_of_ours_on_a_gpu_alone() -> None:
    work = work_of(GRAPHS["convolution_by_channel"], GPU)
    assert isinstance(work, Regional) and ops(work.plan({})) == [["depthwise2d", "add"]]
    with pytest.raises(NotCovered):
        work_of(GRAPHS["convolution_by_channel"], CPU)


def test_a_bias_with_nothing_behind_it_stays_in_the_call() -> None:
    plan = cut(graph("bare"), bias=True, long_rows=True)
    assert ops(plan) == [["conv2d"], ["pixel_shuffle"]] and not plan.rules


def test_library_calls_alone_are_refused_with_the_reason_of_each() -> None:
    with pytest.raises(NotCovered) as refused:
        work_of(GRAPHS["bare"], GPU)
    assert refused.value.kept == {
        "conv2d": "no template covers aten.conv2d.default.",
        "pixel_shuffle": "no template covers aten.pixel_shuffle.default.",
    }


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", MODULES)
def test_every_step_reads_what_came_before_it_and_names_are_let_go(name: str, device: Device) -> None:
    text = written(name, device)
    [model] = [n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"]
    [forward] = model.body
    assert isinstance(forward, ast.FunctionDef)
    known = {"self", "torch", "float", *(a.arg for a in forward.args.args)}
    known |= {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    for line in forward.body:
        names = [n for n in ast.walk(line) if isinstance(n, ast.Name)]
        assert {n.id for n in names if isinstance(n.ctx, ast.Load | ast.Del)} <= known
        known |= {n.id for n in names if isinstance(n.ctx, ast.Store)}
        known -= {n.id for n in names if isinstance(n.ctx, ast.Del)}


def test_a_constant_that_is_changed_is_read_as_a_tensor() -> None:
    plan = cut(graph("a_constant_that_is_changed"), bias=True, long_rows=False)
    assert [kernel.reads[-1] for kernel in plan.kernels] == ["zeros_like", "ones_like"]
    with pytest.raises(NotCovered, match=r"no template covers aten\.(fill_|mul_)\.Tensor"):
        lower(graph("a_constant_that_is_changed"))


def test_kernels_that_are_alike_are_written_once() -> None:
    candidate = written("alike", CPU)
    assert len(re.findall(r"= _k1_relu_mul_add\(", candidate)) == 2
    assert len(re.findall(r"^namespace k\d", candidate, re.MULTILINE)) == 2


def test_what_an_effect_orders_stays_in_order() -> None:
    plan = cut(graph("counts_its_calls"), bias=False, long_rows=False)
    steps = [name for step in plan.steps for name in (step.nodes if isinstance(step, Kernel) else (step.name,))]
    assert steps.index("mul") < steps.index("add_") < steps.index(plan.graph.outputs[0])


def test_the_operators_that_pytorch_keeps_are_named_in_the_file() -> None:
    assert "# PyTorch computes conv2d.\n" in written("conv_tail", GPU)
    assert "# Rule: a convolution's bias is added by the kernel behind it.\n" in written("conv_tail", GPU)


def test_an_operator_without_a_readable_form_is_called_by_its_name() -> None:
    assert "torch.ops.aten.lstm.input(" in written("recurrent", CPU)
    assert "torch.nn.functional.conv2d(x, self.conv.weight" in written("conv_tail", CPU)


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "cuda"])
def test_genes_of_regions_give_different_files(device: Device) -> None:
    work = work_of(GRAPHS["residual_block"], device)
    assert isinstance(work, Regional)
    assert len(work.space.starts) >= 4
    texts = [work.write(source("residual_block"), start) for start in work.space.starts]
    assert len(set(texts)) == len(texts) == len({work.space.title(start) for start in work.space.starts})


def test_every_target_writes_regions() -> None:
    assert set(TARGETS) == {CPU.target, GPU.target}


def test_running_statistics_that_nobody_reads_later_change_together_at_the_end() -> None:
    plan = cut(graph("norms_in_training"), bias=True, long_rows=False)
    changes = [step for step in plan.steps if isinstance(step, Node) and step.op.endswith("_.default")]
    *alone, last = changes
    said = [
        [arg.node for arg in step.args[0]] if isinstance(step.args[0], list) else step.args[0].node for step in changes
    ]
    assert plan.steps[-1] is last and last.op == "aten._foreach_copy_.default"
    assert said == [
        "b_norms_0_running_mean",
        "b_norms_0_running_var",
        "b_norms_1_running_mean",
        ["b_norms_0_running_mean", "b_norms_0_running_var", "b_norms_1_running_var"],
    ]
    assert {step.op for step in alone} == {"aten.copy_.default"}


def test_a_call_in_place_before_a_view_of_its_result_is_a_kernel() -> None:
    plan = cut(graph("in_place_before_a_view"), bias=True, long_rows=False)
    assert ["relu"] in ops(plan) and "aten.relu_.default" not in {plan.node(name).op for name in plan.reasons}


def test_a_product_with_one_is_nothing() -> None:
    plan = cut(graph("in_place_before_a_view"), bias=True, long_rows=False)
    assert plan.graph.outputs == ("linear_1",)


def test_a_function_that_rises_follows_the_maximum_that_alone_reads_it() -> None:
    plan = cut(graph("largest_of_what_rises"), bias=True, long_rows=False)
    order = [node.op.split(".")[1] for node in plan.graph.nodes]
    assert RISES in plan.rules
    assert order.index("sigmoid") > order.index("max_pool2d")
    assert order.index("tanh") < order.index("amax")  # the mean reads it too
    assert order.index("gelu") < len(order) - order[::-1].index("max_pool2d")  # falls below -0.75


def test_a_norm_of_few_columns_takes_its_moments_lot_by_lot() -> None:
    plan = cut(graph("norm_of_few_columns"), bias=True, long_rows=True)
    assert [kernel.program.chains for kernel in plan.kernels] == [(24, 512), (6, 4), (2048, 6)]


def test_the_length_of_a_long_vector_is_folded_piece_by_piece() -> None:
    plan = cut(graph("length_of_all"), bias=True, long_rows=True)
    folds = [kernel.program.chains for kernel in plan.kernels if kernel.program.chains[1] > 1]
    assert folds == [(5, 16000), (1, 5), (8, 10000), (2, 4)]


def test_rows_that_a_kernel_would_read_for_each_moment_go_piece_by_piece() -> None:
    shape = [600, 4, 256, 256]
    norm = {
        "name": "group_norm",
        "op": "aten.group_norm.default",
        "args": [{"node": "x"}, 1, None, None, 1e-5, True],
        "kwargs": {},
        "outputs": [{"shape": shape, "dtype": "float32"}],
    }
    one = GRAPHS["group_norm_of_long_rows"]
    x = {"name": "x", "shape": shape, "dtype": "float32", "strides": [262144, 65536, 256, 1]}
    work = work_of({**one, "inputs": [x], "parameters": [], "nodes": [norm], "outputs": ["group_norm"]}, GPU)
    assert isinstance(work, Regional)
    assert sum(kernel.moved for kernel in work.plan({}).kernels) < 3.1 * 4 * 600 * 262144


def test_a_norm_of_no_rows_stays_the_call_that_it_was() -> None:
    x = Leaf("x", Spec((0, 16), "float32"), None)
    node = Node("y", "aten.layer_norm.default", (Ref("x"), [16], None, None, 1e-5), {}, (x.spec,))
    assert not cut(Graph((), {"x": x}, (node,), ("y",), "tensor"), bias=True, long_rows=True).kernels


@pytest.mark.parametrize("changed", ["x", "old"])
def test_a_copy_is_read_itself_where_it_or_what_it_copies_changes(changed: str) -> None:
    x = Leaf("x", Spec((8, 16), "float32"), None)
    copy = Node("old", "aten.clone.default", (Ref("x"),), {}, (x.spec,))
    row = Node("row", "aten.select.int", (Ref(changed), 0, 0), {}, (Spec((16,), "float32"),))
    change = Node("add_", "aten.add_.Tensor", (Ref("row"), 1), {}, row.outputs)
    y = Node("y", "aten.tanh.default", (Ref("old"),), {}, (x.spec,))
    found = cut(Graph((), {"x": x}, (copy, row, change, y), ("y",), "tensor"), bias=True, long_rows=True)
    [kernel] = found.kernels
    assert kernel.reads == ("old",)
    steps = [step.name for step in found.steps if isinstance(step, Node)]
    assert steps.index("old") < steps.index("add_") and (found.steps[-1] is kernel or changed == "x")
    [unchanged] = cut(Graph((), {"x": x}, (copy, y), ("y",), "tensor"), bias=True, long_rows=True).kernels
    assert unchanged.reads == ("x",)


def test_a_softmax_of_long_rows_reads_them_twice() -> None:
    plan = cut(graph("softmax_of_long_rows"), bias=True, long_rows=True)
    assert [kernel.program.chains for kernel in plan.kernels if "log_softmax" in kernel.nodes[0]] == [
        (20, 16000),
        (2, 10),
        (320000, 1),
    ]
