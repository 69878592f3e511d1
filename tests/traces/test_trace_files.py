"""Every public trace file at hand, read by Ullage and worked out a second time without it: equal to the nanosecond.

The files are not in the repository; without them these tests are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ullage
from tests.traces.trace_brute_force import Answer, Part, worked_out
from ullage.kernels.family import family
from ullage.reports.trace.part import RunPart
from ullage.reports.trace.trace import MOST_REGIONS, TraceReport
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.bounds import host_ranges
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import host_parts, merge
from ullage.sums.lanes.spans import intersect, spans

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
SMALL = 1_200_000  # bytes on disk up to which a file is tried in the fast suite
FILES = sorted([*DATA.glob("kineto/*.json.gz"), *DATA.glob("nsys/*.sqlite")])


def slow_where_big(path: Path) -> pytest.ParameterSet:
    big = path.stat().st_size > (SMALL if path.suffix == ".sqlite" else SMALL // 4)
    return pytest.param(path, id=path.name.split(".")[0], marks=[pytest.mark.full] if big else [])


def given(found: RunPart) -> Part:
    devices = sorted((p.kernel, p.collective, p.memory) for p in found.device_parts)
    return Part(found.elapsed, devices, sorted((p.elapsed, p.offload, p.communication) for p in found.host_parts))


@pytest.mark.parametrize("path", [slow_where_big(path) for path in FILES] or [pytest.param(DATA, id="no files")])
def test_a_real_file_gives_the_sums_that_brute_force_gives(path: Path, shared_data: Path) -> None:
    expected, traced = worked_out(path), ullage.read_trace(str(path))
    report = traced.report("ai")
    assert given(report.whole) == expected.whole
    assert sum(p.device.launches for p in report.whole.device_parts) == expected.kernels
    assert (report.kernels.kernel_time if report.kernels else 0) == expected.kernel_time
    for part in report.whole.device_parts:
        assert part.kernel + part.collective + part.memory + part.idle == report.whole.elapsed
    dropped = traced.profile.problems.dropped
    assert sum(count for what, count in dropped.items() if what.startswith("device events")) == expected.timeless
    compare_regions(report, expected)
    compare_steps(report, expected)


def compare_regions(report: TraceReport, expected: Answer) -> None:
    shown = {found.name: given(found) for found in report.regions}
    assert shown == {name: expected.regions[name] for name in shown}
    assert len(shown) == min(MOST_REGIONS, len(expected.regions))


def compare_steps(report: TraceReport, expected: Answer) -> None:
    assert [found.name for found in report.steps] == [name for name, _ in expected.steps]
    for found, (_, part) in zip(report.steps, expected.steps, strict=True):
        assert found.elapsed == part.elapsed
        assert found.host_totals is not None
        assert found.host_totals.offload_time == sum(lane[1] for lane in part.lanes)
        if found.device_totals is not None:
            kernel, collective, memory = (sum(device[n] for device in part.devices) for n in range(3))
            totals = found.device_totals
            assert (totals.kernel_time, totals.collective_time, totals.memory_time) == (kernel, collective, memory)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("hta_v100_rank1of2_df_index_resolver", 1.00061),
        ("hta_a100_rank0of2_nccl_data", 0.15750),
        ("tracelens_h100_google_owlv2-large-patch14-ensemble__1016001", 0.56676),
    ],
)
def test_a_device_is_as_long_active_as_others_measured(shared_data: Path, name: str, seconds: float) -> None:
    # HolisticTraceAnalysis gives 1.00062, 0.15404 and 0.56160: it cuts every event down to whole microseconds
    totals = ullage.read_trace(str(shared_data / "kineto" / f"{name}.json.gz")).report("ai").whole.device_totals
    assert totals is not None
    assert round(totals.max_active_time / 1e9, 5) == seconds


def test_kernels_that_are_named_after_operators_have_their_family() -> None:
    # names of the MTIA profile
    names = ["fc-dtype_Float", "aten::cat.out-dtype_Float-extraKey_2", "divide-dtype_Float", "vector_norm_float_order-dtype_Float"]
    assert [family(name) for name in names] == ["gemm", "copy", "elementwise", "reduction"]


def test_a_few_windows_cut_out_of_many_spans_what_lies_in_them() -> None:
    many = spans(*((at, at + 10) for at in range(0, 2000, 20)))
    # of 0–10, 20–30, …: 5–10 and 20–25; nothing of 30–40; 1990–1995 lies behind the last span, 1980–1990
    few = spans((5, 25), (30, 40), (1985, 1995))
    expected = spans((5, 10), (20, 25), (1985, 1990))
    for found in (intersect(few, many), intersect(many, few)):
        assert (found.start.tolist(), found.end.tolist()) == (expected.start.tolist(), expected.end.tolist())


def test_the_step_of_the_clock_counts_for_the_calls_of_a_region_alone() -> None:
    calls = tuple(ScenarioEvent(at, at + 50, "api", "cudaLaunchKernel", 1, thread=1, call="launch") for at in range(0, 1000, 100))
    scenario = Scenario("steps", (*calls, ScenarioEvent(500, 700, "region", "forward", 1, thread=1)), {1: 0})
    run = merge([reduce(gather(scenario.batches(), scenario.recording()))])
    # the region holds two of ten calls, each of which may be two steps longer than it says, or one shorter at each end
    [useful] = host_ranges(host_parts(run, run.region("forward")), resolution=10).useful
    assert useful == (100 - 2 * 2 * 10, 100 + 2 * 10)


def test_reading_a_trace_does_not_load_pandas(tmp_path: Path) -> None:
    at = {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    events = [
        {**at, "cat": "cuda_runtime", "name": "cudaLaunchKernel"},
        {**at, "cat": "kernel", "name": "gemm", "args": {"device": 0}},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    code = f"import sys, ullage; print(ullage.read_trace({str(path)!r}).report().whole.elapsed, 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "2000 False\n"


def page_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trace_files", ROOT / "docs" / "trace_files.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_names_every_file(shared_data: Path) -> None:
    text = (ROOT / "docs" / "trace-files.md").read_text(encoding="utf-8")
    places = [*FILES, *shared_data.glob("talp/*.json"), *shared_data.glob("paraver/*.prv.gz")]
    assert [path.name for path in places if f"`{page_script().called(path)}`" not in text] == []


@pytest.mark.full
def test_the_page_is_fresh(shared_data: Path) -> None:
    fresh = page_script().page(shared_data)
    assert fresh == (ROOT / "docs" / "trace-files.md").read_text(encoding="utf-8"), "run docs/trace_files.py"
