"""One live run gives OFU as a product: parallel efficiency from the recording, tensor issue and clock from the counters beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cupti import cupti_double
from ullage import trace
from ullage.metrics.computation import computation
from ullage.metrics.tree import Node
from ullage.render.run import record, view
from ullage.reports.trace.run import run_report
from ullage.simulate.traces.recording import write
from ullage.simulate.traces.scenario import EPOCH, Scenario, ScenarioEvent
from ullage.tables import samples
from ullage.views.text import text

H100 = "NVIDIA H100 80GB HBM3"  # its tensor clock is 1830 MHz
ONE, TWO, OTHER = (f"GPU-{digit * 8}-0000-0000-0000-000000000001" for digit in "12f")
SECOND = 10**9
BEGIN = EPOCH // 10**6  # ms
CLOCK = 0.9 * 1.83e9


def scenario(busy, length=10.0, uuids=(ONE,), **more):
    """A program of one process and so many seconds; a kernel a GPU runs from the start for `busy` of them."""
    edges = [ScenarioEvent(0, 10**6, "api", "cudaLaunchKernel", 40, thread=40, call="launch", correlation=1)]
    edges.append(
        ScenarioEvent(int(length * SECOND) - 10**6, int(length * SECOND), "api", "cudaDeviceSynchronize", 40, thread=40, call="sync")
    )
    kernels = [
        ScenarioEvent(0, int(seconds * SECOND), "kernel", "gemm", 40, device=number, stream=7, correlation=1)
        for number, seconds in enumerate(busy)
    ]
    devices = {number: (H100, uuid) for number, uuid in enumerate(uuids)}
    return Scenario("a.out", tuple(edges[:1] + kernels + edges[1:]), {40: 0}, devices, **more)


def reading(seconds, tensor=0.3, gpu=ONE, clock=CLOCK, **more):
    """A sample that many seconds after the program's start."""
    return {"time": BEGIN + round(seconds * 1000), "gpu": gpu, "model": H100, "tensor_active": tensor, "sm_clock": clock, **more}


def every_half(first=0.5, last=10.0, **more):
    return [reading(first + 0.5 * step, **more) for step in range(round((last - first) / 0.5) + 1)]


def telemetry(folder, rows, host="node-1", **told):
    names = list(dict.fromkeys(name for row in rows for name in row))
    batch = samples({name: [row.get(name) for row in rows] for name in names})
    pq.write_table(pa.Table.from_batches([batch]), folder / f"telemetry-{host}.parquet")
    said = {"by": "NVML's GPM", "interval": 0.5, "notes": [], "instances": {}} | told
    (folder / f"telemetry-{host}.json").write_text(json.dumps(said))


def report(folder, program, rows=None, *, mode=None, region=None, **told):
    files = [str(path) for path in write(program, folder)]
    if rows is not None:
        telemetry(folder, rows, **told)
    return run_report(0, trace(files, mode=mode, region=region), folder)


def factors(found):
    return {node.metric: round(node.value, 6) for _, node in found.ofu.walk()}


def test_ofu_is_parallel_efficiency_times_issue_times_clock(tmp_path):
    # kernels for 6 of 10 s: 0.6; TPA 0.3 of all the time, so 0.5 of theirs; 1647 of 1830 MHz: 0.9; 0.6 × 0.5 × 0.9 = 0.27
    found = report(tmp_path, scenario([6.0]), every_half())
    told = factors(found)
    assert told["ofu"] == 0.27 and told["device_parallel_efficiency"] == 0.6
    assert told["tensor_issue_efficiency"] == 0.5 and told["clock_efficiency"] == 0.9 and told["device_computational_efficiency"] == 0.45
    assert (found.method, found.by, found.notes) == ("sampled", "NVML's GPM", ())


def test_other_gpus_and_other_times_do_not_count(tmp_path):
    # a neighbour that computes without end, and hours before and after in which this GPU did
    elsewhere = every_half(gpu=OTHER, tensor=0.95) + every_half(-20.0, -0.5, tensor=0.9) + every_half(10.5, 30.0, tensor=0.9)
    # the sample at 0.0 ends where the program begins, the one at 10.5 begins where it ends
    found = report(tmp_path, scenario([6.0]), [*elsewhere, reading(0.0, tensor=0.9), *every_half()])
    assert factors(found)["ofu"] == 0.27


def test_samples_that_reach_over_the_edges_of_the_program_do_not_thin_it_out(tmp_path):
    # the first sample ends at 0.25 s, half of it before the start; the last one at 10.25 s. The pipes are active 0.3 of the program's
    # time and never outside: those two say 0.15 of their own time
    rows = [reading(-0.25, tensor=0.0), reading(0.25, tensor=0.15), *every_half(0.75, 9.75), reading(10.25, tensor=0.15)]
    rows += every_half(10.75, 12.75, tensor=0.0)
    assert factors(report(tmp_path, scenario([6.0]), rows))["ofu"] == 0.27


def test_cycle_counters_make_it_exact(tmp_path):
    # of 1.647e9 cycles a second 0.3 are active: in half a second 0.8235e9 pass and 0.24705e9 are
    counted = [
        reading(0.5 * step, clock=1.2e9, sm_cycles=round(0.8235e9 * step), tensor_cycles=round(0.24705e9 * step)) for step in range(21)
    ]
    found = report(tmp_path, scenario([6.0]), counted)
    assert found.method == "exact" and factors(found)["ofu"] == 0.27


def test_two_gpus_are_averaged_and_each_uuid_may_be_spelled_either_way(tmp_path):
    # K 6 and 2 s of 10: (0.6 + 0.2) / 2 = 0.4; TPA (0.3 + 0.1) / 2 = 0.2, so issue 0.5; the clocks are alike
    rows = every_half(gpu=ONE.removeprefix("GPU-").upper()) + every_half(gpu=TWO, tensor=0.1)
    told = factors(report(tmp_path, scenario([6.0, 2.0], uuids=(ONE, TWO)), rows))
    assert (told["device_parallel_efficiency"], told["tensor_issue_efficiency"], told["ofu"]) == (0.4, 0.5, 0.18)


def test_a_gpu_counts_while_its_process_lives_and_as_idle_after(tmp_path):
    # the second process ends after 5 of 10 s, K 2 s: (6 + 2) / 20 = 0.4; TPA (0.3 × 10 + 0.2 × 5) / 20 = 0.2, whatever comes after
    first, second = scenario([6.0]), scenario([2.0], length=5.0)
    moved = [replace(event, process=41, thread=event.thread and 41, device=event.device and 1) for event in second.events]
    moved = [replace(event, device=1) if event.kind == "kernel" else event for event in moved]
    both = Scenario("a.out", (*first.events, *moved), {40: 0, 41: 1}, {0: (H100, ONE), 1: (H100, TWO)})
    rows = every_half() + every_half(last=5.0, gpu=TWO, tensor=0.2) + every_half(5.5, 10.0, gpu=TWO, tensor=0.9)
    told = factors(report(tmp_path, both, rows))
    assert (told["device_parallel_efficiency"], told["tensor_issue_efficiency"], told["ofu"]) == (0.4, 0.5, 0.18)


def test_a_mean_of_products_is_no_product_of_means(tmp_path):
    # half of the time TPA 0.6 at 915 MHz (OFU 0.3), the other half 0 at 1830: OFU 0.15, TPA 0.3, so the clock counts as 0.5
    rows = [reading(0.5 * step, tensor=0.6 if step % 2 else 0.0, clock=0.915e9 if step % 2 else 1.83e9) for step in range(1, 21)]
    told = factors(report(tmp_path, scenario([6.0]), rows))
    assert (told["ofu"], told["clock_efficiency"]) == (0.15, 0.5)


def test_a_mig_instance_is_known_by_its_own_uuid(tmp_path):
    uuid = "MIG-22222222-0000-0000-0000-000000000002"
    rows = every_half(mig="1g.10gb/7") + every_half(mig="3g.40gb/1", tensor=0.9) + every_half(tensor=0.8)
    program = scenario([6.0], uuids=("GPU-" + uuid.removeprefix("MIG-"),))
    files = [str(path) for path in write(program, tmp_path)]
    telemetry(tmp_path, rows, instances={uuid: [ONE, "1g.10gb/7"]})
    said = trace(files)
    [device] = said.run.devices
    mig = with_key(said, device, uuid)
    assert factors(run_report(0, mig, tmp_path))["ofu"] == 0.27


def with_key(said, device, key):
    """The report of a trace whose one device is a MIG instance."""
    [part] = said.whole.device_parts
    own = replace(device, key=key)
    return replace(said, run=replace(said.run, devices=(own,)), whole=replace(said.whole, device_parts=(replace(part, device=own),)))


def test_a_run_of_less_than_two_intervals_says_so_instead_of_a_number(tmp_path):
    found = report(tmp_path, scenario([0.5], length=0.9), every_half(-2.0, 3.0))
    assert found.ofu is None
    assert found.notes == ("OFU is not known: the run of 0.9 s is too short for counters that are read every 0.5 s",)


def test_a_gpu_without_samples_is_named_and_nothing_is_said_of_the_others(tmp_path):
    found = report(tmp_path, scenario([6.0, 2.0], uuids=(ONE, TWO)), every_half())
    assert found.ofu is None
    assert found.notes == (f"OFU is not known: of 1 of the 2 GPUs that the program used too few samples came ({TWO})",)


@pytest.mark.parametrize("begun", [[], every_half(last=2.0, tensor=None)])
def test_what_was_not_sampled_is_taken_to_be_like_the_rest_and_said(tmp_path, begun):
    # the first sample that tells of tensor pipes stands for the time since 2.0 s: 8 of 10 s
    found = report(tmp_path, scenario([6.0]), begun + every_half(2.5, 10.0))
    assert factors(found)["ofu"] == 0.27
    assert found.notes == ("the counters were read for 80 % of the program's time; the rest is taken to be like it",)


def test_work_of_another_program_on_the_same_gpu_is_suspected(tmp_path):
    # SMs active 0.8 of the time, kernels recorded for 0.6
    [note] = report(tmp_path, scenario([6.0]), every_half(sm_active=0.8)).notes
    assert note.startswith(
        "the SMs were active in 80 % of the time, and the recorded kernels ran in 60 %: did another program use these GPUs"
    )


def test_a_clock_above_the_tensor_clock_is_no_contradiction(tmp_path):
    # 1980 of 1830 MHz: 1.08
    found = report(tmp_path, scenario([6.0]), every_half(clock=1.98e9, sm_active=0.55))
    assert found.notes == () and factors(found)["clock_efficiency"] == 1.081967


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"by": "", "notes": ["GPU 0 tells no activity"]}, ("GPU 0 tells no activity",)),
        ({"notes": ["PM sampling may hold the clock"]}, ("PM sampling may hold the clock",)),
    ],
)
def test_what_the_samplers_noted_is_said(tmp_path, told, expected):
    assert report(tmp_path, scenario([6.0]), every_half(), **told).notes == expected


def test_notes_come_from_every_host_even_one_without_samples(tmp_path):
    (tmp_path / "telemetry-node-2.json").write_text(json.dumps({"by": "", "interval": 0.5, "notes": ["no driver"], "instances": {}}))
    (tmp_path / "telemetry-node-3.json").write_text("{torn")
    assert report(tmp_path, scenario([6.0]), every_half()).notes == ("no driver",)


def test_an_unknown_gpu_and_a_missing_clock_are_named(tmp_path):
    rows = [row | {"model": "Mystery 9000"} for row in every_half()]
    (tmp_path / "a").mkdir()
    assert report(tmp_path / "a", scenario([6.0]), rows).notes == ("OFU is not known: no GPU is called 'Mystery 9000'",)
    (tmp_path / "b").mkdir()
    assert report(tmp_path / "b", scenario([6.0]), every_half(clock=None)).notes == ("OFU is not known: the counters tell no clock",)


def test_damaged_samples_are_a_note(tmp_path):
    program = scenario([6.0])
    (tmp_path / "telemetry-x.parquet").write_bytes(b"PAR1 nothing")
    [note] = report(tmp_path, program).notes
    assert note.startswith("OFU is not known: the samples of the counters can't be read")


def test_a_region_has_no_ofu_of_its_own(tmp_path):
    program = scenario([6.0])
    region = ScenarioEvent(10**9, 2 * 10**9, "region", "forward", 40, thread=40)
    found = report(tmp_path, Scenario("a.out", (*program.events, region), program.ranks, program.devices), every_half(), region="forward")
    assert found.ofu is None and found.notes[0].startswith("OFU is not told of a region")


def test_without_telemetry_the_trees_stand_alone(tmp_path):
    found = report(tmp_path, scenario([6.0]))
    assert found.ofu is None and found.notes == () and found.trace.whole.device.value == 0.6
    assert record(found)["ofu"] is None


def test_the_text_tells_ofu_with_its_factors_before_anything_else(tmp_path):
    said = text(view(report(tmp_path, scenario([6.0]), every_half())))
    assert said.startswith("OFU 27 %, device parallel efficiency 60 % (host parallel efficiency ")
    assert "\nOFU is sampled, by activities and clocks (read by NVML's GPM)\n" in said
    first, second = said.index("\nDevice  OFU"), said.index("\nHost    ")
    assert (
        first < second
        and said[first:second].strip()
        == """\
Device  OFU                                 0.27  █████···············
        ├─ Device parallel efficiency       0.60  ████████████········
        └─ Device computational efficiency  0.45  █████████···········
           ├─ Tensor issue                  0.50  ██████████··········
           └─ Clock                         0.90  ██████████████████··"""
    )


def test_the_record_is_the_traces_with_ofu_and_how_it_was_found(tmp_path):
    told = record(report(tmp_path, scenario([6.0]), every_half()))
    assert {name: value if isinstance(value, str) else round(value, 6) for name, value in told["ofu"].items()} == {
        "ofu": 0.27, "device_parallel_efficiency": 0.6, "device_computational_efficiency": 0.45, "tensor_issue_efficiency": 0.5,
        "clock_efficiency": 0.9, "method": "sampled", "by": "NVML's GPM",
    }  # fmt: skip
    assert told["exit"] == 0 and told["run_notes"] == [] and json.dumps(told)


ON_DOUBLES = """
import sys
from tests.live.nvml_double import Gpu, Nvml
from tests.live.sampled_machine import Load
gpu = Gpu("GPU-01010101-0101-0101-0101-010101010101", activity=Load(0.2, counted=False))
sys.modules["pynvml"] = Nvml([gpu])
from ullage.cli import main
main()
"""


def test_a_live_run_prints_ofu_as_a_product_of_what_was_recorded_and_what_was_counted(tmp_path):
    # a fake program on the doubles of CUDA and CUPTI, recorded by injection; beside it NVML's, whose GPU is at 1410 of 1830 MHz: 0.7705
    told = tmp_path / "run.json"
    command = [sys.executable, "-c", ON_DOUBLES, "run", "--json", str(told), "--", str(cupti_double.program()), "--seconds", "1.5"]
    done = subprocess.run(command, env=cupti_double.environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(told.read_text())["ofu"]
    product = found["device_parallel_efficiency"] * found["tensor_issue_efficiency"] * found["clock_efficiency"]
    assert found["ofu"] == pytest.approx(product)
    assert found["clock_efficiency"] == pytest.approx(1410 / 1830)
    assert (found["method"], found["by"]) == ("sampled", "NVML's GPM") and "OFU " in done.stderr


def test_a_doubt_about_the_trace_is_one_about_what_rests_on_it():
    # between 0.5 and 0.75: 0.3 / 0.75 = 0.4 and 0.3 / 0.5 = 0.6
    tree = computation(Node("device_parallel_efficiency", "Parallel efficiency", 0.6, 0.5, 0.75), ofu=0.27, tensor=0.3)
    issue = tree.find("tensor_issue_efficiency")
    assert (issue.low, issue.value, issue.high) == (pytest.approx(0.4), 0.5, pytest.approx(0.6))
