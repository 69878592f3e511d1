"""Counters without a GPU: structures against NVIDIA's headers, names and units against its libraries, FLOPs from counts."""

from __future__ import annotations

import math
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cupti.cupti_counting import double, installed, real
from ullage.cupti.counters import catalogue, host, perfworks
from ullage.cupti.counters.chips import _BY_NAME, code
from ullage.cupti.counters.host import Host, Use
from ullage.cupti.counters.images import CounterImage, unpacked
from ullage.cupti.counters.names import KINDS, CounterMetric, complete, matching, resolved
from ullage.cupti.counters.structures import SHAPES, parameters, structure
from ullage.cupti.counters.work import finest, flops, tensor_metric, tensor_work
from ullage.cupti.metric_names import dictionary
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError
from ullage.gpus.chip import CHIPS

HEADERS = (
    "cupti_profiler_host.h", "cupti_profiler_target.h", "cupti_range_profiler.h", "cupti_pmsampling.h", "cupti_target.h",
    "nvperf_host.h", "nvperf_cuda_host.h",
)  # fmt: skip
PER_INSTRUCTION = "sm__ops_path_tensor_op_{}_src_{}_sparsity_{}.sum"


@pytest.mark.parametrize("version", [28, 130_101])
def test_structures_are_those_of_nvidias_headers(version, tmp_path):
    library = installed(version) or pytest.skip(f"no CUPTI of version {version} on this machine")
    compiler = shutil.which("g++") or pytest.skip("no C++ compiler")  # 12.9's headers are C++
    include = library.path.parent.parent / "include"
    cuda = next((place for place in (include, *include.parents[1].glob("*/include")) if (place / "cuda.h").exists()), None)
    if not (include / HEADERS[0]).exists() or cuda is None:
        pytest.skip("the headers are not installed")
    lines = ["#include <cstdio>", "#include <cstddef>", *(f"#include <{header}>" for header in HEADERS), "int main() {"]
    for function, shape in SHAPES.items():
        names = [name for name, _, _ in shape.known(version)] or ["pPriv"]
        lines += [
            f'std::printf("{function} %zu", offsetof({shape.name}, {names[-1]}) + sizeof((({shape.name}*)0)->{names[-1]}));',
            *(f'std::printf(" %zu", offsetof({shape.name}, {name}));' for name in names),
            'std::printf("\\n");',
        ]
    source = tmp_path / "sizes.cpp"
    source.write_text("\n".join([*lines, "return 0; }"]))
    command = [compiler, "-w", f"-I{include}", f"-I{cuda}", "-o", str(tmp_path / "sizes"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    told = subprocess.run([str(tmp_path / "sizes")], check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == [_ours(function, version) for function in SHAPES]


def _ours(function, version):
    made = structure(function, version)
    names = [name for name, _, _ in SHAPES[function].known(version)] or ["pPriv"]
    return " ".join(map(str, [function, made.SIZE, *(getattr(made, name).offset for name in names)]))


@pytest.mark.parametrize(
    ("function", "first", "since"),
    [
        ("cuptiPmSamplingSetConfig", 24, 26), ("cuptiProfilerHostGetMetricProperties", 130_001, 130_101),
        ("cuptiProfilerHostInitialize", 130_101, 130_202), ("cuptiRangeProfilerEnable", 130_301, 130_401),
    ],
)  # fmt: skip
def test_a_structure_grows_with_the_release_that_brought_the_field(function, first, since):
    assert structure(function, first).SIZE < structure(function, since).SIZE
    assert structure(function, None).SIZE == structure(function, first).SIZE  # unknown: what every release accepts


def test_a_field_that_a_release_does_not_know_is_left_out():
    given_ = parameters("cuptiPmSamplingSetConfig", 24, hwBufferAppendMode=1, samplingInterval=5)
    assert given_.samplingInterval == 5
    assert not hasattr(type(given_), "hwBufferAppendMode")


def test_perfworks_and_the_profiler_host_have_the_same_metrics():
    library = real()
    with perfworks.Evaluator(library, "GH100") as evaluator, Host(library, "GH100", Use.RANGES) as opened:
        found = evaluator.metrics()
        for kind, name in enumerate(KINDS):
            assert {metric.name for metric in found if metric.kind == name} == set(opened.names(kind))
        metric = next(metric for metric in found if metric.name == "sm__cycles_active")
        told = opened.describe("sm__cycles_active")
    assert (told.kind, told.hardware, told.description) == (metric.kind, metric.hardware, metric.description)


def test_the_profiler_hosts_list_that_grows_with_every_call_is_given_once():
    with Host(real(), "GH100", Use.RANGES) as opened:
        assert opened.names(2) == opened.names(2)


def test_the_library_and_the_dictionary_agree_on_names_and_units():
    with perfworks.Evaluator(real(), "GB100") as evaluator:
        found = {(metric.name, metric.kind, metric.unit, metric.hardware) for metric in evaluator.metrics()}
    assert found == {(metric.name, metric.kind, metric.unit, metric.hardware) for metric in dictionary.metrics("GB100", "13.1")}


def test_every_chip_of_the_library_can_be_asked():
    library = real()
    assert perfworks.chips(library) == host.chips(library)
    with perfworks.Evaluator(library, perfworks.chips(library)[-1]) as evaluator:
        assert len(evaluator.metrics()) > 1000


def test_the_active_and_the_elapsed_share_differ_in_the_denominator_alone():
    with perfworks.Evaluator(real(), "GH100") as evaluator:
        share = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_{}"
        active, elapsed = (set(evaluator.raw([share.format(what)])) for what in ("active", "elapsed"))
    assert active & elapsed  # the pipe's counter
    assert active != elapsed


@pytest.mark.parametrize("open_", [lambda library: perfworks.Evaluator(library, "XX1"), lambda library: Host(library, "XX1", Use.RANGES)])
def test_a_chip_that_the_library_lacks_is_named(open_):
    with pytest.raises(UllageError, match="doesn't know the chip 'XX1'"):
        open_(real())


def test_a_metric_that_cannot_be_evaluated_is_named():
    with perfworks.Evaluator(real(), "GH100") as evaluator, pytest.raises(UllageError, match="no metric 'sm__cycles_active'"):
        evaluator.passes(["sm__cycles_active"])


def test_a_library_without_the_profiler_host_says_since_when_it_is_there(monkeypatch):
    library = double()
    monkeypatch.setattr(type(library), "has", lambda _, name: not name.startswith("cuptiProfilerHost"))
    assert "came with CUPTI 12.6" in host.refusal(library)


CRASHES = """
int cuptiGetVersion(unsigned *version) { *version = 130202; return 0; }
int cuptiProfilerHostInitialize(void *given) { (void)given; int *nowhere = 0; return *(volatile int *)nowhere; }
"""
REFUSES = CRASHES.replace("int *nowhere = 0; return *(volatile int *)nowhere;", "return 999;").replace("130202", "130500")


@pytest.mark.parametrize(("source", "words"), [(CRASHES, "crashes when it is asked"), (REFUSES, "CUPTI 13.5 (")])
def test_a_library_that_crashes_or_refuses_without_a_driver_is_one_sentence(tmp_path, monkeypatch, source, words):
    compiler = shutil.which("gcc") or pytest.skip("no compiler")
    monkeypatch.setattr(host, "cuda_version", lambda: None)
    for name, text in (("libcupti.so.13", source), ("libnvperf_host.so", ""), ("libnvperf_target.so", "")):
        (tmp_path / "source.c").write_text(text + "\nint something;")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / name), str(tmp_path / "source.c")], check=True)
    from ullage.cupti.library import find

    assert words in host.refusal(find(tmp_path))
    with pytest.raises(UllageError, match=r"(without|only where there is) an NVIDIA driver") as caught:
        Host(find(tmp_path), "GH100", Use.RANGES)
    assert "12.6 to 13.1" in caught.value.hint


def test_an_error_of_the_library_keeps_its_number():
    with Host(real(), "GH100", Use.RANGES) as opened, pytest.raises(CuptiError) as caught:
        opened.describe("sm__nothing")
    assert caught.value.code > 0


def test_without_a_library_the_dictionary_answers_and_says_so(monkeypatch):
    def none(_path):
        raise UllageError("there is no libcupti on this machine")

    monkeypatch.setattr(catalogue, "find", none)
    source = catalogue.source()
    found = catalogue.catalogue("GH100", source)
    assert source.reason == "there is no libcupti on this machine"
    assert found.by_name["sm__cycles_active"].unit == "gpc_cycles"
    assert "dictionary" in found.told
    assert "GH100" in catalogue.chips(source)


def test_a_chip_that_a_library_has_dropped_comes_from_the_dictionary():
    found = catalogue.catalogue("GV100", catalogue.CounterSource(real(), "asked of CUPTI 13.1"))
    assert "sm__cycles_active" in found.by_name
    assert "dictionary" in found.told


def test_every_nvidia_gpu_has_a_chip_that_cupti_knows():
    CHIPS.load()
    known = set(dictionary.chips())
    assert {gpu.name for gpu in CHIPS.values() if gpu.vendor == "NVIDIA" and code(gpu.name, gpu.compute_capability) not in known} == set()
    assert {code(gpu.name, gpu.compute_capability) for gpu in CHIPS.values() if gpu.vendor != "NVIDIA"} == {""}
    assert set(_BY_NAME) <= set(CHIPS), "a board whose chip is said here and that is not known"


METRICS = [
    CounterMetric("sm__cycles_active", "counter"), CounterMetric("sm__throughput", "throughput"),
    CounterMetric("l1tex__t_sector_hit_rate", "ratio"),
    CounterMetric("dram__bytes_read", "counter"), CounterMetric("TPC.TriageCompute.sm__cycles_active", "counter"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("dram*", ["dram__bytes_read"]), ("hit_rate", ["l1tex__t_sector_hit_rate"]), ("^sm__.*put$", ["sm__throughput"]),
        ("*.sm__cycles_activ?", ["TPC.TriageCompute.sm__cycles_active"]), ("DRAM", ["dram__bytes_read"]), ("", [m.name for m in METRICS]),
    ],
)  # fmt: skip
def test_a_pattern_is_a_part_a_glob_or_a_regular_expression(pattern, names):
    assert [metric.name for metric in matching(METRICS, pattern)] == names


def test_names_without_roll_up_are_completed_and_globs_opened_each_name_once():
    asked = ["sm__cycles_active", "sm__*.avg", "sm__cycles_active.sum", "sm__throughput"]
    assert resolved(asked, METRICS, "X1") == [
        "sm__cycles_active.sum", "sm__cycles_active.avg", "sm__throughput.avg", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ]  # fmt: skip
    assert complete("l1tex__t_sector_hit_rate", "ratio") == "l1tex__t_sector_hit_rate.ratio"


def test_a_name_that_the_chip_lacks_brings_the_nearest():
    with pytest.raises(UllageError, match=r"X1 has no metric 'sm__cycle_active\.sum'") as caught:
        resolved(["sm__cycle_active.sum"], METRICS, "X1")
    assert "'sm__cycles_active'" in caught.value.hint


@given(st.text(max_size=40), st.lists(st.tuples(st.integers(0, 2**60), st.integers(0, 2**60)), max_size=4), st.binary(max_size=99))
def test_an_image_is_read_as_it_was_written(chip, times, data):
    image = CounterImage("pm", chip, ("a.sum", chip), None, data, times=tuple(times))
    assert unpacked(image.packed()) == image
    assert (len(image.packed()) - len(data)) % 8 == 0


def test_every_tensor_operation_is_counted_once_whatever_was_collected():
    # 100 operations by warp group, 20 legacy; the total and its parts are all there, and 7 sparse ones are among the 100
    values = {
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 120.0, "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum": 100.0,
        PER_INSTRUCTION.format("hgmma", "bf16_dst_fp32", "on"): 7.0, PER_INSTRUCTION.format("hgmma", "bf16_dst_fp32", "off"): 93.0,
        PER_INSTRUCTION.format("hmma", "bf16_dst_fp32", "on"): 0.0, PER_INSTRUCTION.format("hmma", "bf16_dst_fp32", "off"): 20.0,
    }  # fmt: skip
    assert flops(values) == {"bf16": 120.0}
    assert sum(part.flops for part in tensor_work(values) if part.legacy) == 20
    assert sum(part.flops for part in tensor_work(values) if part.sparse) == 7


def test_what_a_total_has_beyond_the_parts_that_are_there_is_not_lost():
    # 100 in all, 60 of them dense; the count of sparse ones could not be computed
    values = {"sm__ops_path_tensor_src_fp8.sum": 100.0, "sm__ops_path_tensor_src_fp8_sparsity_off.sum": 60.0}
    assert flops(values | {"sm__ops_path_tensor_src_fp8_sparsity_on.sum": math.nan}) == {"fp8": 100.0}
    assert {part.sparse: part.flops for part in tensor_work(values)} == {False: 60.0, None: 40.0}
    # two levels: 8 by warp group and 4 by warp of 20, of the latter 3 are dense
    name = "sm__ops_path_tensor{}_src_bf16_dst_fp32{}.sum"
    values = {name.format("", ""): 20.0, name.format("_op_hgmma", ""): 8.0, name.format("_op_hmma", ""): 4.0}
    values[name.format("_op_hmma", "_sparsity_off")] = 3.0
    assert sorted((part.instruction, part.flops) for part in tensor_work(values)) == [
        ("", 8.0),
        ("hgmma", 8.0),
        ("hmma", 1.0),
        ("hmma", 3.0),
    ]


def test_an_instruction_is_not_counted_by_the_sm_and_by_its_sub_partitions():
    name = "__sass_thread_inst_executed_op_ffma_pred_on.sum"
    assert flops({f"smsp{name}": 50.0, f"sm{name}": 50.0}) == flops({f"smsp{name}": 50.0}) == {"fp32 vector": 100.0}


def test_the_total_alone_will_do():
    assert flops({"sm__ops_path_tensor_src_fp8.sum": 4096.0}) == {"fp8": 4096.0}
    assert [part.legacy for part in tensor_work({"sm__ops_path_tensor_src_fp8.sum": 4096.0})] == [None]


def test_sources_that_share_a_rate_are_one_precision():
    # B200: FP8, FP6 and FP4 mixed run at the rate of FP8; NVFP4 products have a counter of their own
    values = {"sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum": 10.0, "sm__ops_path_tensor_src_fp4_dst_fp32.sum": 5.0}
    assert flops(values) == {"fp8": 10.0, "fp4": 5.0}


def test_a_multiply_add_is_two_flops_and_a_packed_one_four():
    counted = "sm__sass_thread_inst_executed_op_{}_pred_on.sum"
    values = {
        counted.format(deed): count for deed, count in (("ffma", 100.0), ("fadd", 10.0), ("fmul", 1.0), ("dfma", 3.0), ("ffma2", 5.0))
    }
    # 2 × 100 + 10 + 1 + 4 × 5 = 231; 2 × 3 = 6
    assert flops(values) == {"fp32 vector": 231.0, "fp64 vector": 6.0}


def test_a_pipes_instructions_are_an_upper_bound_and_give_way_to_a_count():
    pipe = {"sm__inst_executed_pipe_fma.sum": 10.0}
    assert flops(pipe) == {"fp32 vector, at most": 640.0}  # 10 × 32 threads × 2
    assert flops(pipe | {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum": 50.0}) == {"fp32 vector": 100.0}


@pytest.mark.parametrize("values", [{}, {"sm__ops_path_tensor_src_fp8.sum": math.nan}, {"sm__ops_path_tensor_src_fp8.avg": 5.0}])
def test_what_was_not_counted_or_is_no_sum_gives_nothing(values):
    assert flops(values) == {}


@pytest.mark.parametrize("chip", ["TU104", "GA100", "AD102", "GH100", "GB100", "GB110", "GB202"])
def test_the_finest_counters_of_every_chip_cover_its_totals(chip):
    known = [metric.name for metric in dictionary.metrics(chip)]
    found = [tensor_metric(name) for name in finest(known)]
    totals = [one for name in known if not name.endswith("_realtime") and (one := tensor_metric(name)) is not None]
    assert all(one in found or any(part.refines(one) for part in found) for one in totals)
    assert not any(one.refines(other) for one in found for other in found)
    assert all(re.fullmatch(r"(fp|bf|tf|int)\d+", one.precision) for one in found)


def test_the_finest_counters_share_no_counter_of_the_hardware_and_leave_none_out():
    # NVIDIA's own formulas, by which FP4 in all has a counter of its own on the chips of GeForce
    fp4 = "sm__ops_path_tensor_src_fp4_dst_fp32"
    for chip in perfworks.chips(real()):
        with perfworks.Evaluator(real(), chip) as evaluator:
            names = [m.name for m in evaluator.metrics() if tensor_metric(m.name) and not m.name.endswith("_realtime")]
            raw = {name: set(evaluator.raw([f"{name}.sum"])) for name in names}
        parts = finest(names)
        held = set().union(*(raw[name] for name in parts))
        assert sum(len(raw[name]) for name in parts) == len(held), chip
        assert [name for name in names if not raw[name] <= held] == ([fp4] if chip.startswith("GB20") else []), chip
