"""Which matrix product a kernel computed: from the operators of a PyTorch profile, by brute force and in hostile forms."""

from __future__ import annotations

import gzip
import json
import math
from bisect import bisect_right
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.seeds import some
from tests.traces.kineto_events import call, kernel, on_host, reading, written
from ullage.product import CONVOLUTION, EARLIER, GRAPH, GROUPED, Product, attention, moved_bytes, moved_word, product
from ullage.simulate.traces.kineto import write
from ullage.simulate.traces.scenario import ProcessScenario, Scenario
from ullage.sums.lanes.code.levels import annotation_level
from ullage.sums.lanes.gather import KIND, LaneRows, gather
from ullage.sums.lanes.products import products
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.spans import spans
from ullage.traces.kineto.attention import attention_by
from ullage.traces.kineto.moved import bytes_by
from ullage.traces.kineto.products import asked_by

DATA = Path(__file__).parents[3] / "shared" / "data" / "kineto"
# Where the matrices of an operator stand, written down anew from PyTorch's native_functions.yaml.
MATRICES = {"aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::addmm": (1, 2), "aten::baddbmm": (1, 2)}
SHAPED = [
    "hta_a100_rank0of16_neg_queue",
    "hta_v100_rank1of2_trace_diff_test",
    "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005",
    "tracelens_h100_gaunernst_bert-small-uncased__1016001",
    "tracelens_h100_google_owlv2-large-patch14-ensemble__1016001",
    "tracelens_mi300_Qwen_Qwen1.5-0.5B-Chat__1016005",
    "tracelens_mi300_facebook_timesformer-base-finetuned-k400__1016002",
    "tracelens_mi300_gaunernst_bert-small-uncased__1016001",
    "tracelens_mi300_google_owlv2-large-patch14-ensemble__1016001",
    "tracelens_mi300_torch_compile_triton",
    "tracelens_mi300_vllm_decode_hipgraph",
    "tracelens_mi300_xdit_sd35_rank0",
]


def events_of(name):
    path = DATA / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    return path, json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def by_brute_force(events):
    """Return (kernel, m, n, k, batch) → [count, ns], and by why it is not known; nothing of ours is called.

    The operator is that with the kernel's "External id"; where this is the correlation (before 2024), the one of its thread
    that was running when the call of this correlation began.
    """
    kernels = [e for e in events if e.get("cat") == "kernel" and e["dur"] > 0]
    older = sum(e["args"].get("External id") == e["args"]["correlation"] for e in kernels) > len(kernels) / 2
    operators = [e for e in events if e.get("cat") == "cpu_op" and e["name"] in MATRICES and "Input Dims" in e["args"]]
    numbered = {} if older else {e["args"]["External id"]: e for e in operators}
    calls = {e["args"].get("correlation"): e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    lanes = {}
    for one in sorted(operators, key=lambda e: e["ts"]):
        lanes.setdefault((one["pid"], one["tid"]), []).append(one)
    found = {}
    for one in kernels:
        operator = numbered.get(one["args"].get("External id"))
        if older and (launch := calls.get(one["args"]["correlation"])):
            lane = lanes.get((launch["pid"], launch["tid"]), [])
            place = bisect_right(lane, launch["ts"], key=lambda e: e["ts"])
            operator = lane[place - 1] if place and launch["ts"] <= lane[place - 1]["ts"] + lane[place - 1]["dur"] else None
        if operator is not None:
            a, b = (operator["args"]["Input Dims"][place] for place in MATRICES[operator["name"]])
            key = (one["name"], a[-2], b[-1], a[-1], math.prod(a[:-2]))
            known = found.setdefault(key, [0, 0])
            known[0] += 1
            known[1] += round(one["dur"] * 1000)
    return found


@pytest.mark.parametrize("name", some(SHAPED, 3))
def test_counts_and_times_by_product_are_those_of_a_brute_force(name):
    path, events = events_of(name)
    rows, _, _ = reading(path)
    ours = {}
    for row in rows:
        if row["kind"] == "kernel" and (one := product(row["product"] or "")) is not None:
            known = ours.setdefault((row["name"], one.m, one.n, one.k, one.batch), [0, 0])
            known[0] += 1
            known[1] += row["end"] - row["start"]
    expected = by_brute_force(events)
    # collectives and what is no kernel can't be asked for; nothing else differs, not by a nanosecond
    assert expected
    assert ours == expected


@pytest.mark.parametrize(
    "name", ["tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005", "tracelens_mi300_gaunernst_bert-small-uncased__1016001"]
)
def test_an_operator_found_by_time_is_the_one_found_by_number(name, tmp_path):
    path, events = events_of(name)
    blind = [e | {"args": {k: v for k, v in e["args"].items() if k != "External id"}} if e.get("cat") == "kernel" else e for e in events]
    whole = Counter((row["name"], row["product"]) for row in reading(path)[0] if row["kind"] == "kernel")
    told = Counter((row["name"], row["product"]) for row in reading(written(tmp_path, *blind))[0] if row["kind"] == "kernel")
    # bytes are told by number alone
    assert any(moved_bytes(word or "") for _, word in whole) and not any(moved_bytes(word or "") for _, word in told)
    without = Counter()
    for (kernel_name, word), count in whole.items():
        without[kernel_name, None if moved_bytes(word or "") is not None else word] += count
    assert told == without


@pytest.mark.parametrize(
    ("operator", "dims", "types", "word"),
    [
        # m × k by k × n, as each operator takes them
        ("aten::mm", [[4, 5], [5, 6]], ["float", "float"], "1x4x6x5 fp32"),
        ("aten::addmm", [[6], [4, 5], [5, 6], [], []], ["double"] * 3, "1x4x6x5 fp64"),
        ("aten::baddbmm", [[3, 4, 6], [3, 4, 5], [3, 5, 6]], ["c10::Half"] * 3, "3x4x6x5 fp16"),
        ("aten::_int_mm", [[32, 64], [64, 8]], ["signed char"] * 2, "1x32x8x64 int8"),
        ("aten::_scaled_mm", [[32, 64], [64, 8], [], []], ["c10::Float8_e4m3fn"] * 2, "1x32x8x64 fp8"),
        # two FP4 numbers in an element: K is 2 × 64
        ("aten::_scaled_mm", [[32, 64], [64, 8]], ["c10::Float4_e2m1fn_x2"] * 2, "1x32x8x128 fp4"),
        # a weight is n × k, and rows of the input are counted over all but its last dimension: 2 × 3 of them
        ("aten::linear", [[2, 3, 5], [7, 5], [7]], ["c10::BFloat16"] * 3, "1x6x7x5 bf16"),
        ("aten::mm", [[4, 5], [5, 6]], [], "1x4x6x5"),
        ("aten::mm", [[4, 5], [7, 6]], ["float"] * 2, None),
        ("aten::mm", [[0, 5], [5, 6]], ["float"] * 2, None),
        ("aten::mm", [[4, 5], [5, 6]], ["c10::complex<float>"] * 2, None),  # a complex product needs four times the FLOPs
        ("aten::bmm", [[2, 4, 5], [3, 5, 6]], ["float"] * 2, None),
        ("aten::linear", [[5], [7, 5]], ["float"] * 2, None),
        ("aten::mm", [[4, 1e30], [5, 6]], ["float"] * 2, None),
        ("aten::mm", "shapes", None, None),
        ("aten::addmm", [[4, 5]], ["float"], None),
        ("aten::mm", [[2**40, 5], [5, 6]], ["float"] * 2, None),
    ],
)
def test_each_operator_is_read_as_pytorch_defines_it(operator, dims, types, word):
    found = asked_by(operator, dims, types)
    assert (None if found is None else found.word) == word


@given(st.integers(1, 2**39), st.integers(1, 2**39), st.integers(1, 2**39), st.integers(1, 2**39), st.sampled_from(["", "bf16", "fp32"]))
def test_a_word_says_its_product(batch, m, n, k, precision):
    one = Product(batch, m, n, k, precision)
    assert product(one.word) == one
    assert one.transposed.transposed == one
    assert one.transposed.flops == one.flops == 2 * batch * m * n * k


def mm(ts, dur, **args):
    return on_host(ts, dur, "aten::mm", "cpu_op", **{"Input Dims": [[4, 5], [5, 6]], "Input type": ["float", "float"]} | args)


def told(tmp_path, *events):
    return [row["product"] for row in reading(written(tmp_path, *events))[0] if row["kind"] == "kernel"]


def test_a_kernel_without_a_number_belongs_to_the_operator_that_its_call_lies_in(tmp_path):
    # the call begins at 12, within 10 to 20; that of correlation 2 begins at 25, after it
    events = [mm(10, 10), call(12, 2, correlation=1), call(25, 2, correlation=2)]
    assert told(tmp_path, *events, kernel(30, 5, correlation=1), kernel(40, 5, correlation=2)) == ["1x4x6x5 fp32", None]


def test_a_number_that_is_the_correlation_names_no_operator(tmp_path):
    # before 2024 the kernel's number is its correlation, 7; operator 7 is another, and its call lies in operator 3
    events = [mm(10, 10, **{"External id": 7, "Input Dims": [[1, 1], [1, 1]]}), mm(30, 10, **{"External id": 3})]
    events += [call(32, 2, correlation=7), kernel(50, 5, correlation=7, **{"External id": 7})]
    assert told(tmp_path, *events) == ["1x4x6x5 fp32"]


def test_calls_of_another_thread_lie_in_no_operator(tmp_path):
    other = call(12, 2, correlation=1) | {"tid": 99}
    assert told(tmp_path, mm(10, 10), other, kernel(30, 5, correlation=1)) == [None]


def test_what_is_not_one_product_says_so(tmp_path):
    grouped = on_host(10, 5, "aten::_grouped_mm", "cpu_op", **{"External id": 1, "Input Dims": [[64, 8], [4, 8, 16]]})
    folded = on_host(20, 5, "aten::cudnn_convolution", "cpu_op", **{"External id": 2})
    kernels = [kernel(30 + 10 * n, 5, correlation=90 + n, **{"External id": n}) for n in (1, 2)]
    # 64 rows times 8 × 16 of whichever expert has them; of the convolution no sizes are recorded
    assert told(tmp_path, grouped, folded, *kernels) == [f"{GROUPED} 64x8*4x8x16 16384 FLOP 1664 numbers", CONVOLUTION]


def test_hip_counts_some_grids_in_work_items(tmp_path):
    # 225,280 work items in blocks of 256 are 880 blocks; an ordinary launch gives blocks
    events = [call(0, 2, "hipExtModuleLaunchKernel", correlation=1), call(3, 2, "hipLaunchKernel", correlation=2)]
    size = {"grid": [225_280, 1, 1], "block": [256, 1, 1]}
    rows = reading(written(tmp_path, *events, kernel(10, 5, correlation=1, **size), kernel(20, 5, correlation=2, **size)))[0]
    assert [row["blocks"] for row in rows if row["kind"] == "kernel"] == [880, 225_280]


def test_modules_are_told_as_they_were_called(tmp_path):
    functions = [on_host(0, 50, "nn.Module: Linear_3", "python_function"), on_host(5, 10, "torch/nn.py(1): forward", "python_function")]
    rows = reading(written(tmp_path, *functions, call(6, 2), kernel(10, 5)))[0]
    assert [(row["name"], row["thread"]) for row in rows if row["kind"] == "module"] == [("Linear_3", 12)]


def one_rank(*, product_word, region=None, does="launch"):
    to = ProcessScenario(7001, 0)
    first = to.call(0, 10, "cudaLaunchKernel", does, 7001)
    to.work(20, 60, "kernel", "gemm", 7, first, product=product_word, blocks=8, threads=128)
    to.work(60, 70, "kernel", "gemm", 7, 999)  # launched by nothing that was recorded
    if region:
        to.host(0, 30, "region", region, 7001)
    to.host(0, 100, "host", "aten::step", 7001)
    return Scenario("one", tuple(to.events), {7001: 0}, {0: ("NVIDIA H100 80GB HBM3", "GPU-1")})


def summed(scenario):
    return [(row.product, row.layer, row.count, row.time) for row in reduce(gather(scenario.batches(), scenario.recording())).products]


def test_time_and_layer_are_kept_by_product():
    assert summed(one_rank(product_word="1x4x6x5 fp32", region="forward")) == [("1x4x6x5 fp32", "forward", 1, 40), (EARLIER, "", 1, 10)]


def test_a_kernel_of_a_graph_says_so():
    assert summed(one_rank(product_word=None, does="graph")) == [(GRAPH, "", 1, 40), (EARLIER, "", 1, 10)]


def test_rows_beyond_the_most_are_summed_by_name_and_no_time_is_lost():
    capture = gather((scenario := one_rank(product_word="1x4x6x5 fp32")).batches(), scenario.recording())
    found = products(capture, {0: spans((0, 2**62))}, most=0)
    assert [(row.kernel, row.product, row.count, row.time) for row in found] == [("gemm", "", 2, 50)]


@pytest.mark.parametrize("how", [{}, {"compact": True}, {"gzip": True}], ids=str)
def test_a_written_product_is_read_back(how, tmp_path):
    (path,) = write(one_rank(product_word="3x4x6x5 bf16"), tmp_path, **how)
    assert [row["product"] for row in reading(path)[0] if row["kind"] == "kernel"] == ["3x4x6x5 bf16", None]


def named(*ranges):
    """Return rows of modules: (start, end, thread, word)."""
    start, end, thread, word = (np.array(column, np.int64) for column in zip(*ranges, strict=True))
    process = np.ones(len(start), np.int64)
    kind = np.full(len(start), KIND["module"], np.int8)
    return LaneRows(start, end, kind=kind, process=process, thread=thread, name=word.astype(np.int32))


def calls(*moments, thread=1):
    start = np.array(moments, np.int64)
    return LaneRows(start, start + 1, process=np.ones(len(start), np.int64), thread=np.full(len(start), thread, np.int64))


def layers(host, words, calls):
    level = annotation_level(host, words)
    return level.around(calls.process, calls.thread, calls.start), level.names


def test_a_layer_is_the_path_of_what_is_open_around_a_call():
    words = ["Model_0", "Layer_0", "Linear_17", "Layer_1"]
    host = named((0, 100, 1, 0), (10, 40, 1, 1), (20, 30, 1, 2), (50, 60, 1, 3))
    found, paths = layers(host, words, calls(5, 15, 25, 35, 45, 55, 200))
    # a running number is left out, so both layers are one
    said = [paths[code] if code >= 0 else "" for code in found.tolist()]
    assert said == ["Model", "Model/Layer", "Model/Layer/Linear", "Model/Layer", "Model", "Model/Layer", ""]


def test_a_thread_without_names_belongs_to_what_waits_for_it():
    found, paths = layers(named((0, 100, 1, 0)), ["backward"], calls(50, thread=2))
    assert [paths[code] for code in found.tolist()] == ["backward"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=12), st.lists(st.integers(0, 120), min_size=1))
def test_the_innermost_of_nested_ranges_is_found(spans, moments):
    # cut each range to end within the one that is open when it begins, as calls of functions do; edges are even, moments odd
    nested = []
    for start, length in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        nested.append((2 * start, min([2 * (start + length), *(end for begin, end in nested if begin <= 2 * start < end)])))
    nested = list(dict.fromkeys(nested))
    names = [f"r{n}" for n in range(len(nested))]
    found, paths = layers(named(*((low, high, 1, n) for n, (low, high) in enumerate(nested))), names, calls(*(2 * m + 1 for m in moments)))
    for code, moment in zip(found.tolist(), moments, strict=True):
        around = [n for n, (low, high) in enumerate(nested) if low < 2 * moment + 1 < high]
        innermost = min(around, key=lambda n: nested[n][1] - nested[n][0], default=None)
        assert (paths[code].split("/")[-1] if code >= 0 else None) == (None if innermost is None else names[innermost])


# Bytes by hand: 4 for each float, 2 for each BFloat16, 8 for each long, 1 for each bool; what is read, and what is written.
@pytest.mark.parametrize(
    ("operator", "dims", "types", "strides", "expected"),
    [
        ("aten::add", [[4, 8], [4, 8], []], ["float", "float", "Scalar"], None, 3 * 128),
        ("aten::add_", [[4, 8], [8], []], ["float", "float", "Scalar"], None, 128 + 32 + 128),
        ("aten::mul", [[4, 1], [1, 8]], ["c10::BFloat16", "c10::BFloat16"], None, 8 + 16 + 64),
        ("aten::mul", [[4, 8], []], ["c10::BFloat16", "double"], None, 64 + 8 + 64),  # a number of no dimensions doesn't widen the result
        ("aten::mul", [[4, 8], [4, 8]], ["c10::BFloat16", "float"], None, 64 + 128 + 128),
        ("aten::mul", [[4, 8], [4, 8]], ["long int", "c10::BFloat16"], None, 256 + 64 + 64),
        ("aten::mul", [[4, 8], [4, 8]], ["float", "float"], [[8, 1], [8, 0]], 128 + 16 + 128),
        ("aten::gt", [[4, 8], [4, 8]], ["float", "float"], None, 256 + 32),
        ("aten::sum", [[4, 8], [], [], []], ["float", "ScalarList", "Scalar", ""], None, 128),
        ("aten::_softmax", [[4, 8], [], []], ["float", "Scalar", "Scalar"], None, 256),
        ("aten::native_layer_norm", [[4, 8], [], [8], [8], []], ["float", "ScalarList", "float", "float", "Scalar"], None, 128 + 64 + 128),
        ("aten::copy_", [[4, 8], [4, 8], []], ["c10::BFloat16", "float", "Scalar"], None, 64 + 128),
        ("aten::copy_", [[4, 8], [8, 4], []], ["float", "float", "Scalar"], [[8, 1], [0, 1], []], 128 + 16),
        ("aten::fill_", [[4, 8], []], ["float", "Scalar"], None, 128),
        ("triton_poi_fused_gelu_0", [[4, 8], [4, 8], []], ["c10::BFloat16", "float", "Scalar"], None, 64 + 128),
        ("aten::add", [[0, 8], [1, 8]], ["float", "float"], None, 32),
        ("aten::add", [[4, 8], [4, 8]], ["float", "Quantised"], None, None),
        ("aten::add", [[4, 8]], ["float", "float"], None, None),
        ("aten::add", [[4, -8]], ["float"], None, None),
        ("aten::copy_", [[4, 8]], ["float"], None, None),
        ("aten::add", "[", ["float"], None, None),
        ("aten::add", [[], []], ["Scalar", "Scalar"], None, None),
    ],
)
def test_bytes_are_those_of_inputs_and_result(operator, dims, types, strides, expected):
    assert bytes_by(operator, dims, types, strides) == expected


def gelu(ts, dur, number):
    return on_host(ts, dur, "aten::gelu", "cpu_op", **{"External id": number, "Input Dims": [[64]], "Input type": ["float"]})


def test_an_operator_of_several_kernels_tells_none_of_them_its_bytes(tmp_path):
    operators = [gelu(5, 20, 7), gelu(29, 5, 8)]
    kernels = [kernel(100 * n, 5, correlation=n, **{"External id": number}) for n, number in ((1, 7), (2, 7), (3, 8))]
    assert told(tmp_path, *operators, *kernels) == [None, None, moved_word(512)]


@pytest.mark.parametrize(
    ("operator", "place", "said", "expected"),
    [
        ("aten::_flash_attention_forward", 0, {8: "False"}, "attention 2x16x4x32x32x64x64 bf16"),
        ("aten::_flash_attention_forward", 0, {8: "True"}, "attention 2x16x4x32x32x64x64 causal bf16"),
        ("aten::_flash_attention_backward", 1, {11: "True"}, "attention 2x16x4x32x32x64x64 causal backward bf16"),
        ("aten::_efficient_attention_forward", 0, {9: "0"}, "attention 2x16x4x32x32x64x64 bf16"),
        ("aten::_efficient_attention_backward", 1, {14: "1"}, "attention 2x16x4x32x32x64x64 causal backward bf16"),
        ("aten::_scaled_dot_product_cudnn_attention", 0, {6: "True"}, "attention 2x32x32x16x4x64x64 causal bf16"),
        ("flash_attn::_flash_attn_forward", 0, {5: "True", 6: "-1", 7: "-1"}, "attention 2x16x4x32x32x64x64 causal bf16"),
        ("flash_attn::_flash_attn_forward", 0, {5: "True", 6: "128", 7: "-1"}, None),
        ("aten::_flash_attention_forward", 0, {8: ""}, None),
        ("aten::_flash_attention_forward", 0, {7: "True"}, None),
    ],
)
def test_attention_is_read_as_each_operator_takes_it(operator, place, said, expected):
    queries, keys = [2, 32, 16, 64], [2, 32, 4, 64]
    dims = [[]] * place + [queries, keys, keys]
    concrete = [said.get(n, "") for n in range(max(said) + 1)]
    if "cudnn" in operator:  # batch × heads × length: 32 heads, and 16 queries to 4 keys can't be causal
        assert attention_by(operator, dims, concrete, "bf16") is None
        dims[1:] = [queries, queries]
        expected = "attention 2x32x32x16x16x64x64 causal bf16"
    found = attention_by(operator, dims, concrete, "bf16")
    assert (None if found is None else found.word) == expected
    if expected:
        assert attention(expected) == found


@pytest.mark.parametrize("queries", [[2, 32, 16], [2, 31, 16, 64], [3, 32, 16, 64], [2, 32, 16, 60], [2, 0, 16, 64], "x"])
def test_attention_whose_shapes_do_not_fit_is_none(queries):
    keys = [2, 32, 4, 64]
    assert attention_by("aten::_flash_attention_forward", [queries, keys, keys], [""] * 8 + ["True"], "bf16") is None
