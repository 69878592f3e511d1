"""FLOPs and numbers to move of convolutions, their gradients and grouped products, counted one by one; and which kernels have them."""

from __future__ import annotations

import random
from itertools import product as every
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import some
from tests.traces.kineto_events import call, kernel, on_host, reading, written
from ullage.gpus.chip import find
from ullage.product import multiplied
from ullage.reports.waterfall.kernel_roofs import _work
from ullage.sums.lanes.products import KernelProduct
from ullage.traces.kineto.convolutions import convolved, grouped, kernels_of, multiplies

SIZES = {"bf16": ("c10::BFloat16", 2), "fp32": ("float", 4)}


def drawn(seed: int) -> dict[str, Any]:
    """A convolution in 1, 2 or 3 dimensions, transposed or not."""
    chance = random.Random(seed)
    ranks, groups = chance.choice((1, 2, 2, 3)), chance.choice((1, 1, 2, 3))
    stride = [chance.randrange(1, 4) for _ in range(ranks)]
    return {
        "batch": chance.randrange(1, 3),
        "groups": groups,
        "into": groups * chance.randrange(1, 3),
        "out": groups * chance.randrange(1, 3),
        "kernel": [chance.randrange(1, 4) for _ in range(ranks)],
        "size": [chance.randrange(7, 9) for _ in range(ranks)],
        "padding": [chance.randrange(0, 3) for _ in range(ranks)],
        "stride": stride,
        "dilation": [chance.randrange(1, 3) for _ in range(ranks)],
        "more": [chance.randrange(s) for s in stride],
        "transposed": chance.random() < 0.4,
    }


def positions(size: int, kernel: int, padding: int, stride: int, dilation: int) -> int:
    """How many times a window fits: slid from the first padded number until it falls off the end."""
    at, found = -padding, 0
    while at + dilation * (kernel - 1) < size + padding:
        at, found = at + stride, found + 1
    return found


def by_brute_force(c: dict[str, Any]) -> tuple[list[int], int]:
    """The result's sizes, and two FLOPs for each product of a number with a weight, padding counted."""
    if c["transposed"]:
        # what a convolution of the result would have as its input: the largest that gives our input, less what it needs not
        spread = [
            [at * s + w * d for at in range(n) for w in range(k)]
            for n, s, k, d in zip(*(c[x] for x in ("size", "stride", "kernel", "dilation")), strict=True)
        ]
        sizes = [max(cells) + 1 - 2 * p + m for cells, p, m in zip(spread, c["padding"], c["more"], strict=True)]
        ahead = c["size"]
    else:
        sizes = [positions(*each) for each in zip(*(c[name] for name in ("size", "kernel", "padding", "stride", "dilation")), strict=True)]
        ahead = sizes
    flops = 0
    for _ in every(range(c["batch"]), *(range(n) for n in ahead), range(c["out"]), range(c["into"] // c["groups"])):
        for _ in every(*(range(k) for k in c["kernel"])):
            flops += 2
    return [c["batch"], c["out"], *sizes], flops


def recorded(c: dict[str, Any], kind: str, backward: tuple[bool, bool] | None = None) -> tuple[str, Any, Any, Any]:
    """A convolution as PyTorch's profiler records it: operator, shapes, types, what else it was given."""
    given = [c["batch"], c["into"], *c["size"]]
    weight = [c["into"], c["out"] // c["groups"]] if c["transposed"] else [c["out"], c["into"] // c["groups"]]
    weight += c["kernel"]
    rest = [
        str(c["stride"]),
        str(c["padding"]),
        str(c["dilation"]),
        str(c["transposed"]),
        str(c["more"] if c["transposed"] else [0] * len(c["size"])),
        str(c["groups"]),
    ]
    if backward is None:
        return "aten::_convolution", [given, weight, [c["out"]], *([[]] * 6)], [kind] * 3, ["", "", "", *rest]
    result, _ = by_brute_force(c)
    mask = str([*backward, True])
    return "aten::convolution_backward", [result, given, weight, *([[]] * 8)], [kind] * 3, ["", "", "", f"[{c['out']}]", *rest, mask]


@pytest.mark.parametrize("seed", some(range(1000), 100))
def test_a_convolution_and_its_gradients_cost_what_counting_gives(seed: int) -> None:
    c = drawn(seed)
    result, flops = by_brute_force(c)
    if min(result) < 1:
        return
    for backward in (None, (True, True), (False, True)):
        operator, dims, types, concrete = recorded(c, "c10::BFloat16", backward)
        found = convolved(operator, dims, types, concrete)
        sizes = 1
        elements = 0
        for shape in (result, [c["batch"], c["into"], *c["size"]], dims[1 if backward is None else 2]):
            sizes = 1
            for size in shape:
                sizes *= size
            elements += sizes
        assert found is not None
        assert (found.flops, found.elements, found.precision) == (flops, elements, "bf16")
        assert kernels_of(operator, concrete) == (1 if backward is None else sum(backward))
        assert multiplied(found.word) == found


@pytest.mark.full
@pytest.mark.parametrize("seed", range(60))
def test_flops_are_those_that_pytorchs_own_counter_gives(seed: int) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import conv_flop_count

    c = drawn(seed)
    result, _ = by_brute_force(c)
    if min(result) < 1:
        return
    given = torch.randn(c["batch"], c["into"], *c["size"], requires_grad=True)
    operator, dims, types, concrete = recorded(c, "float")
    weight = torch.randn(*dims[1], requires_grad=True)
    ranks = len(c["size"])
    options = (c["stride"], c["padding"], c["dilation"], c["transposed"], c["more"] if c["transposed"] else [0] * ranks, c["groups"])
    out = torch.convolution(given, weight, None, *options)
    assert list(out.shape) == result
    found = convolved(operator, dims, types, concrete)
    assert found is not None and found.flops == conv_flop_count(given.shape, weight.shape, out.shape, transposed=c["transposed"])
    assert found.elements == given.numel() + weight.numel() + out.numel()


@pytest.mark.parametrize(
    ("operator", "concrete"),
    [
        ("aten::cudnn_convolution", ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "2"]),
        ("aten::miopen_convolution", ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "2"]),
        ("aten::cudnn_convolution_relu", ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "2"]),
        ("aten::convolution", ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2"]),
    ],
)
def test_the_arguments_of_each_operator_stand_where_its_schema_says(operator: str, concrete: list[str]) -> None:
    # 6 × 6 positions, 2 × 16 × 4 × 3 × 3 × 2 images FLOPs each; 2 × 8 × 12 × 12 and 16 × 4 × 9 and 2 × 16 × 36 numbers
    found = convolved(operator, [[2, 8, 12, 12], [16, 4, 3, 3], *([[]] * (len(concrete) - 2))], ["c10::Half"] * 2, concrete)
    assert found is not None and (found.flops, found.elements, found.precision) == (82_944, 2304 + 576 + 1152, "fp16")


@pytest.mark.parametrize(
    ("operator", "concrete"),
    [
        ("aten::cudnn_convolution_transpose", ["", "", "[1, 1]", "[1, 1]", "[2, 2]", "[1, 1]", "1"]),
        ("aten::miopen_convolution_transpose", ["", "", "", "[1, 1]", "[1, 1]", "[2, 2]", "[1, 1]", "1"]),
        ("aten::convolution", ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[1, 1]", "1"]),
    ],
)
def test_so_do_those_of_transposed_ones(operator: str, concrete: list[str]) -> None:
    # 6 × 6 positions of the input, 2 × 16 × 8 × 3 × 3 × 2 images FLOPs each; the result is 12 × 12
    found = convolved(operator, [[2, 16, 6, 6], [16, 8, 3, 3], *([[]] * (len(concrete) - 2))], ["float"] * 2, concrete)
    assert found is not None and (found.flops, found.elements) == (36 * 2 * 16 * 8 * 9 * 2, 1152 + 1152 + 2 * 8 * 144)


@pytest.mark.parametrize(
    "broken", [[], ["", ""], ["", "", "x", "[1]", "[1]", "1"], ["", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"], None, [[]] * 9]
)
def test_what_is_not_recorded_is_not_guessed(broken: Any) -> None:
    assert convolved("aten::cudnn_convolution", [[2, 8, 12, 12], [16, 4, 3, 3]], ["float"] * 2, broken) is None
    assert convolved("aten::somebodys_convolution", [[2, 8, 12, 12], [16, 4, 3, 3]], ["float"] * 2, ["", "", "[1, 1]"] * 3) is None


@pytest.mark.parametrize("seed", some(range(300), 40))
def test_grouped_products_cost_what_their_products_do_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    m, n, k, experts = (chance.randrange(1, 9) for _ in range(4))
    kind = chance.choice(("rows", "columns", "depth", "batch"))
    edges = sorted(chance.randrange({"rows": m, "columns": n, "depth": k, "batch": 1}[kind] + 1) for _ in range(experts - 1))
    whole = {"rows": m, "columns": n, "depth": k, "batch": 1}[kind]
    parts = [b - a for a, b in zip([0, *edges], [*edges, whole], strict=True)]
    dims = {
        "rows": [[m, k], [experts, k, n]], "columns": [[experts, m, k], [k, n]], "depth": [[m, k], [k, n]],
        "batch": [[experts, m, k], [experts, k, n]],
    }[kind]  # fmt: skip
    each = {"rows": (0, m), "columns": (1, n), "depth": (2, k)}
    flops = 0
    for part in parts if kind != "batch" else [0] * experts:
        sizes = [m, n, k]
        if kind != "batch":
            sizes[each[kind][0]] = part
        flops += 2 * sizes[0] * sizes[1] * sizes[2]
    found = grouped(dims, ["c10::BFloat16"] * 2, {"bfloat16": "bf16"})
    assert found is not None and found.flops == flops
    assert found.elements <= sum(len(list(every(*(range(s) for s in shape)))) for shape in dims) + experts * m * n


def operator(name: str, dims: Any, concrete: list[str], number: int) -> dict[str, Any]:
    args = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * 3, "Concrete Inputs": concrete, "External id": number}
    return on_host(10.0 * number, 5.0, name, "cpu_op", **args)


def launched(number: int, *names: str) -> list[dict[str, Any]]:
    found = []
    for place, name in enumerate(names):
        mark = 100 * number + place
        found += [
            call(10.0 * number + 1 + place, 0.5, correlation=mark),
            kernel(1000.0 * number + 10 * place, 5, name, correlation=mark, **{"External id": number}),
        ]
    return found


BACK = ["", "", "", "[16]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2", "[True, True, False]"]
DIMS = [[2, 16, 6, 6], [2, 8, 12, 12], [16, 4, 3, 3]]
WORD = "convolution 2x8x12x12*16x4x3x3 82944 FLOP 4032 numbers bf16"


def asked(path: Path) -> dict[str, str | None]:
    return {row["name"]: row["product"] for row in reading(path)[0] if row["kind"] == "kernel"}


def test_each_gradient_is_that_of_one_kernel_and_those_beside_it_multiply_nothing(tmp_path: Path) -> None:
    events = [
        operator("aten::convolution_backward", DIMS, BACK, 1),
        *launched(1, "nchwToNhwcKernel", "sm80_xmma_dgrad_implicit_gemm", "sm80_xmma_wgrad_implicit_gemm"),
    ]
    found = asked(written(tmp_path, *events))
    assert found == {"nchwToNhwcKernel": None, "sm80_xmma_dgrad_implicit_gemm": WORD, "sm80_xmma_wgrad_implicit_gemm": WORD}


@pytest.mark.parametrize(
    "names", [("a_wgrad",), ("a_dgrad", "a_wgrad", "b_wgrad"), ("a_dgrad", "a_wgrad", "unheard_of"), ("winograd_dgrad", "a_wgrad")]
)
def test_gradients_in_more_kernels_or_fewer_are_not_shared_out(tmp_path: Path, names: tuple[str, ...]) -> None:
    found = asked(written(tmp_path, operator("aten::convolution_backward", DIMS, BACK, 1), *launched(1, *names)))
    assert set(found.values()) == {"convolution"}


def test_a_convolution_has_a_peak_and_bytes() -> None:
    row = KernelProduct("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32", WORD, "", 1, 128, 3, 9_000)
    work, precision, peak = _work(row, None, find("H100 SXM"))
    assert work is not None and (work.flops, work.bytes, precision) == (3 * 82_944, 3 * 4032 * 2, "bf16")
    assert peak == find("H100 SXM").peak("bf16")


SPACE = "at::native::(anonymous namespace)"
JOINED = f"void {SPACE}::CatArrayBatchedCopy<{SPACE}::OpaqueType<2u>, unsigned int, 3, 64, 64>({SPACE}::OpaqueType<2u>*)"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (JOINED, "1600 B"),  # 400 numbers of 2 bytes, read and written
        (JOINED.replace("Copy<", "Copy_contig<").replace("<2u>", "<4u>"), "3200 B"),
        (JOINED.replace("Copy<", "Copy_vectorized<"), None),  # of vectors, as wide as fits
        ("somebodys_cat", None),
    ],
)
def test_joined_tensors_are_read_and_written_once(tmp_path: Path, name: str, size: str | None) -> None:
    dims = [[[2, 5, 20], [2, 5, 20]], []]
    args = {"Input Dims": dims, "Input type": ["TensorList", "Scalar"], "External id": 1}
    path = written(tmp_path, on_host(10, 5, "aten::cat", "cpu_op", **args), *launched(1, name))
    assert asked(path) == {name: size}


@pytest.mark.parametrize(
    ("name", "does"),
    [("Im2d2Col_v2", False), ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_Bias", True), ("cudnn::cnn::reduce_wgrad_nchw_helper", False)],
)
def test_kernels_of_convolutions_are_told_apart_by_name(name: str, does: bool) -> None:
    assert multiplies(name) is does
