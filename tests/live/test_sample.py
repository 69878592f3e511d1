"""`ullage sample`: this machine's GPUs without a daemon, with stand-ins for their libraries and everything else real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from tests.fleet.servers import get, prometheus, wait_for
from tests.live.amdsmi_double import Amdsmi
from tests.live.amdsmi_double import Gpu as AmdGpu
from tests.live.nvml_double import Gpu, Nvml
from tests.live.sampled_machine import H100, T, gpu, rows
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.live.sampling.course import Course
from ullage.live.sampling.kinds import KINDS, GpuReader
from ullage.live.sampling.readings_file import ParquetFile
from ullage.live.sampling.sampler import Sampler
from ullage.problems import Problems
from ullage.sources.machine import DeviceProcess, GpuLibrary
from ullage.sources.source import Options, read_samples
from ullage.tables import samples


@pytest.fixture
def machine(monkeypatch):
    """Make this machine have these NVIDIA GPUs, and no AMD GPU unless told."""

    def have(*gpus, amd=()):
        monkeypatch.setitem(sys.modules, "pynvml", Nvml(gpus) if gpus else None)
        monkeypatch.setitem(sys.modules, "amdsmi", Amdsmi(*amd) if amd else None)
        monkeypatch.setenv("PATH", "/nonexistent")  # and no nvidia-smi

    return have


# -- what readings come to --------------------------------------------------------------------------------------------


def test_ofu_comes_from_the_cycle_counters_where_there_are_any():
    # 18.3e9 cycles of 1.83 GHz pass in 10 s; in 9.15e9 of them a tensor pipe is active
    course = Course(10)
    course.add(
        [rows((10, {"tensor_cycles": 1e12, "sm_cycles": 5e12}), (20, {"tensor_cycles": 1e12 + 9.15e9, "sm_cycles": 5e12 + 1.41e10}))]
    )
    [device] = course
    assert (device.ofu, device.method) == (pytest.approx(0.5), "exact") and course.totals().ofu == pytest.approx(0.5)


def test_counters_that_are_summed_over_the_sms_give_the_same():
    course = Course(10)
    first, growth = {"tensor_cycles": 0, "sm_cycles": 0}, {"tensor_cycles": 132 * 9.15e9, "sm_cycles": 132 * 1.41e10}
    course.add([rows((10, first), (20, growth))])
    assert next(iter(course)).ofu == pytest.approx(0.5)


def test_counters_that_begin_anew_give_way_to_the_gauges():
    course = Course(10)
    gauges = {"tensor_active": 0.6, "sm_clock": 1.22e9}  # 0.6 × 1220 / 1830 = 0.4
    course.add([rows((10, {"tensor_cycles": 9e12, "sm_cycles": 9e12, **gauges}), (20, {"tensor_cycles": 5, "sm_cycles": 9, **gauges}))])
    [device] = course
    assert (device.ofu, device.method) == (pytest.approx(0.4, rel=1e-6), "sampled")


def test_a_mean_weighs_each_reading_by_the_time_it_stands_for_and_a_gap_by_no_more_than_a_minute():
    # 10 s at 0.3, 10 s at 0.3, then after ten minutes one at 0.6, which stands for 60 s: (20 × 0.3 + 60 × 0.6) / 80 = 0.525
    course, clock = Course(10), {"sm_clock": 1.83e9}
    course.add([rows(*((at, {"tensor_active": ofu, **clock}) for at, ofu in ((10, 0.3), (20, 0.3), (620, 0.6))))])
    assert course.totals().ofu == pytest.approx(0.525, rel=1e-6)


def test_missing_is_not_zero():
    course = Course(10)
    course.add([rows((10, {"sm_clock": 1.41e9, "gpu_util": 1.0}))])
    [device] = course
    totals = course.totals()
    assert device.ofu is None and device.unknown == "nobody tells the activity of its tensor pipes"
    assert (totals.ofu, totals.ullage, totals.known, totals.gpus) == (None, None, 0, 1)


def test_a_gpu_in_mig_mode_counts_by_its_instances():
    # 1g is one of seven slices, 3g three: (1 × 0.7 + 3 × 0.3) / 4 = 0.4, and 4/7 × 0.6 of a GPU is missing
    course, clock = Course(10), np.array([1.83e9] * 3)
    batch = samples(
        {
            "time": [T] * 3,
            "gpu": ["GPU-1"] * 3,
            "model": [H100] * 3,
            "mig": [None, "1g.10gb/7", "3g.40gb/2"],
            "tensor_active": np.array([np.nan, 0.7, 0.3]),
            "sm_clock": clock,
        }
    )
    course.add([batch])
    totals = course.totals({"H100": 7.0})
    assert totals.ofu == pytest.approx(0.4) and totals.gpus == pytest.approx(4 / 7)
    assert totals.ullage == pytest.approx(0.6 * 4 / 7) and totals.cost == pytest.approx(2.4)


def test_a_reading_that_is_known_already_counts_once():
    course, row = Course(10), rows((10, {"tensor_active": 0.5, "sm_clock": 1.83e9}))
    assert len(course.add([row])) == 1 and course.add([row]) == []
    assert next(iter(course)).span == 10_000


def test_a_clock_that_is_set_back_by_an_hour_costs_one_reading_and_not_the_hour():
    course, told = Course(1), {"tensor_active": 0.5, "sm_clock": 1.83e9}
    for at in (1, 2, 3):
        course.add([rows((at, told)), rows((at, told), gpu="GPU-2")])
    for at in (4, 5):
        assert len(course.add([rows((at - 3600, told)), rows((at - 3600, told), gpu="GPU-2")])) == 2
    device = next(iter(course))
    assert (device.span, course.last - course.start) == (5000, 5000)
    assert [time - course.last for time, _, _ in device.course] == [-4000, -3000, -2000, -1000, 0]


def test_one_reading_that_comes_late_sets_no_clock_back():
    course, told = Course(1), {"power": 600.0}
    course.add([rows((1, told)), rows((1, told), gpu="GPU-2")])
    course.add([rows((900, told))])
    assert len(course.add([rows((700, told), gpu="GPU-2")])) == 1 and course.last == T + 900_000
    assert course.add([rows((899, told))]) == [], "known already"


@pytest.mark.parametrize("counted", [True, False])
def test_a_machine_that_was_watched_and_the_file_that_was_kept_of_it_give_one_ofu(tmp_path, counted):
    from ullage.intake import opened
    from ullage.reports.fleet.ofu import fleet_ofu

    dice, course = np.random.default_rng(3), Course(2)
    file = ParquetFile(tmp_path / "x.parquet")
    for device in range(3):
        cycles = np.cumsum(dice.integers(1e8, 3e9, 50))
        for turn in range(50):
            fields = {"tensor_active": dice.random(), "sm_clock": 1e9 + 1e9 * dice.random()}
            fields |= {"tensor_cycles": int(cycles[turn]), "sm_cycles": turn * 2_820_000_000} if counted else {}
            batch = rows((2 * turn + 2, fields), gpu=f"GPU-{device}")
            course.add([batch])
            file.add([batch])
    file.close()
    with opened([str(tmp_path / "x.parquet")], options=Options()) as intake:
        assert course.totals().ofu == pytest.approx(fleet_ofu(intake.samples), rel=1e-6)
    assert course.totals().exact is counted


# -- reading ----------------------------------------------------------------------------------------------------------


def read(sampler, seconds=None):
    with sampler:
        return list(sampler.readings(seconds))


def test_a_reading_comes_for_every_interval(machine):
    machine(gpu("GPU-a", 0.4), gpu("GPU-b", 0.2))
    told = read(Sampler(0.1, problems := Problems()), 0.3)
    assert len(told) == 3 and problems.lines() == []
    batches = [batch for batches in told for batch in batches]
    assert batches and all(batch["tensor_active"].to_pylist() == pytest.approx([0.4, 0.2]) for batch in batches)


def test_nvidia_and_amd_gpus_are_read_side_by_side(machine):
    machine(gpu("GPU-a"), amd=[AmdGpu(uuid="amd-1")])
    sampler = Sampler(0.1, Problems())
    [batches] = read(sampler, 0.1)
    assert {batch["gpu"][0].as_py() for batch in batches} == {"GPU-a", "amd-1"}
    assert sampler.limits["GPU-a"].power == 700 and sampler.limits["amd-1"].power == pytest.approx(750)


def test_nvidia_smi_stands_in_where_nvml_cannot_be_read(machine, tmp_path, monkeypatch):
    machine()
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!{sys.executable}\nprint('0, GPU-x, NVIDIA L4, 1710, 6250, 60, 40, 100, 50, 0x0, 72, 2040, 23034')\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    [[batch]] = read(Sampler(0.1, problems := Problems()), 0.1)
    assert batch["gpu"].to_pylist() == ["GPU-x"]
    assert "NVML can't be read (NVML needs the library 'nvidia-ml-py', which is not installed), so nvidia-smi is" in problems.notes


def test_without_a_gpu_the_error_names_what_was_tried_and_why_each_failed(machine):
    machine()
    with pytest.raises(UllageError) as error:
        read(Sampler(0.1, Problems()))
    assert error.value.problem == (
        "no GPU of this machine can be read: NVML: NVML needs the library 'nvidia-ml-py', which is not installed; "
        "nvidia-smi: nvidia-smi is not installed; amdsmi: the library 'amdsmi' is not installed"
    )


def test_a_library_that_does_not_open_is_given_up_and_named():
    def hangs(*_):
        threading.Event().wait()

    with pytest.raises(UllageError, match=r"NVML: it did not open within 0\.2 s"):
        read(Sampler(0.1, Problems(), kinds=[GpuReader("NVML", hangs)], opening=0.2))


class Stalling:
    """A machine whose second reading takes as long as the test wants."""

    def __init__(self):
        self.asked, self.go_on, self.count = threading.Event(), threading.Event(), 0

    def opened(self, *_):
        return nullcontext(GpuLibrary(self.read, shortest=0.0))

    def read(self, moment):
        self.count += 1
        if self.count == 2:
            self.asked.set()
            self.go_on.wait(30)
        return samples({"time": [moment], "gpu": ["GPU-1"], "index": pa.array([0], pa.int16())})


def test_a_driver_that_stalls_leaves_a_gap_and_is_read_again_afterwards():
    stalling, problems = Stalling(), Problems()
    with Sampler(0.1, problems, kinds=[GpuReader("NVML", stalling.opened)], patience=0.1) as sampler:
        readings = sampler.readings()
        assert next(readings) and stalling.asked.wait(30)
        assert next(readings) == []
        stalling.go_on.set()
        assert any(next(readings) for _ in range(50))
    assert problems.dropped["intervals in which a driver did not answer"] >= 1
    assert "NVML, interval" in problems.first["intervals in which a driver did not answer"]


def test_a_driver_that_stalls_for_ever_does_not_hold_up_the_end_or_the_other_kind():
    stalling = Stalling()
    steady = GpuReader("amdsmi", Stalling.opened.__get__(other := Stalling()))
    other.count = 10  # it never stalls
    sampler = Sampler(0.1, Problems(), kinds=[GpuReader("NVML", stalling.opened), steady], patience=0.1)
    told = read(sampler, 0.5)
    stalling.go_on.set()
    assert len(told) == 5 and sum(len(batches) for batches in told) > 2  # one of the stalled kind, the others of the steady one


def test_a_library_that_breaks_in_the_middle_is_counted():
    broken = Stalling()
    broken.read = lambda moment: 1 / 0
    told = read(Sampler(0.1, problems := Problems(), kinds=[GpuReader("NVML", broken.opened)]), 0.2)
    assert told == [[], []]
    assert problems.first == {"readings that failed": "NVML: ZeroDivisionError('division by zero')"}


@pytest.mark.parametrize("broken", ["processes", "errors"])
def test_processes_and_errors_fail_apart_and_keep_the_time_at_which_they_were_told(broken):
    counts = {"processes": 0, "errors": 0, "read": 0}
    times = []

    def told(what, answer):
        def ask():
            counts[what] += 1
            if what == broken and counts[what] > 1:
                raise RuntimeError("not now")
            return {("GPU-1", None): answer}

        return ask

    def read(moment):
        times.append(moment)
        return samples({"time": [moment], "gpu": ["GPU-1"], "index": pa.array([0], pa.int16())})

    library = GpuLibrary(read, device_processes=told("processes", [DeviceProcess(41)]), health=told("errors", {"xid": 79.0}), shortest=0.0)
    kind = GpuReader("NVML", lambda *_: nullcontext(library))
    with Sampler(0.05, problems := Problems(), kinds=[kind], with_processes=True) as sampler:
        [list(batches) for batches in sampler.readings(0.15)]
    old, new = (sampler.device_processes, sampler.health) if broken == "processes" else (sampler.health, sampler.device_processes)
    assert sampler.device_processes["GPU-1", None].value == [DeviceProcess(41)] and sampler.health["GPU-1", None].value == {"xid": 79.0}
    assert old["GPU-1", None].time == times[0] < new["GPU-1", None].time
    assert problems.dropped[f"readings of {broken} that failed"] >= 1 and len(problems.dropped) == 1


def test_processes_are_known_where_a_reading_failed():
    library = GpuLibrary(lambda moment: 1 / 0, device_processes=lambda: {("GPU-1", None): [DeviceProcess(41)]}, shortest=0.0)
    sampler = Sampler(0.05, Problems(), kinds=[GpuReader("NVML", lambda *_: nullcontext(library))], with_processes=True)
    assert read(sampler, 0.05) == [[]] and sampler.device_processes["GPU-1", None].value == [DeviceProcess(41)]


def test_a_gpu_that_falls_off_the_bus_is_counted_and_the_others_go_on(machine):
    lost = Nvml.NVMLError(Nvml.NVML_ERROR_GPU_IS_LOST)
    gone = Gpu(
        "GPU-gone", sm_clock=lost, memory_clock=lost, power=lost, energy=lost, temperature=lost, memory=lost, util=lost, reasons=lost
    )
    gone.gpm = False
    machine(gpu("GPU-a", 0.4), gone)
    course, problems = Course(0.1), Problems()
    for batches in read(Sampler(0.1, problems), 0.2):
        course.add(batches)
    assert course.totals().silent == 1 and course.totals().ofu == pytest.approx(0.4 * 1410 / 1830, rel=1e-6)
    assert [device.unknown for device in course] == ["", "it does not answer"]
    assert "GPU is lost" in problems.first["readings that the driver refused"]


def test_only_the_gpus_that_were_asked_for_are_read_and_one_that_is_not_there_is_an_error(machine):
    machine(gpu("GPU-a"), gpu("GPU-b"), gpu("GPU-c"))
    [[batch]] = read(Sampler(0.1, Problems(), gpus=["2", "GPU-a"]), 0.1)
    assert batch["gpu"].to_pylist() == ["GPU-a", "GPU-c"]
    with pytest.raises(UllageError, match="this machine has no GPU '7'") as error:
        read(Sampler(0.1, Problems(), gpus=["0", "7"]), 0.1)
    assert error.value.hint == "it has 0, 1, 2; give a number or a UUID"


def test_it_gives_everything_back(machine):
    machine(gpu("GPU-a"))
    read(Sampler(0.1, Problems()), 0.1)
    double = sys.modules["pynvml"]
    assert not double.running and all(sample.freed for sample in double.samples)


def test_the_kinds_of_this_machine_are_nvml_or_nvidia_smi_and_amdsmi():
    assert [(kind.name, kind.otherwise and kind.otherwise.name) for kind in KINDS] == [("NVML", "nvidia-smi"), ("amdsmi", None)]


# -- the command ------------------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(cli, ["sample", "--every", "0.1s", *arguments], catch_exceptions=False)


def test_the_first_line_is_the_answer(machine):
    machine(gpu("GPU-a", 0.4), gpu("GPU-b", 0.2))
    answer = run("--for", "0.3s")
    assert answer.exit_code == 0
    # (0.4 + 0.2) / 2 × 1410 / 1830 = 23.1 %; 2 × 0.769 GPUs are missing
    assert answer.stdout.splitlines()[0] == "OFU 23.1 %; 1.5 of 2 GPUs' worth missing"
    assert answer.stdout.splitlines()[1].startswith("sampled, by activity and clock; 2 GPUs; ")
    assert "OFU 0.23 = load balance 0.75 × activity 0.80 × SM fill 0.75 × tensor issue 0.67 × clock 0.77" in answer.stdout


def test_json_lines_hold_readings_alone(machine):
    machine(gpu("GPU-a", 0.4), Gpu("GPU-b", name="NVIDIA A100-SXM4-80GB", gpm=False))
    answer = run("--for", "0.2s", "--json")
    told = [json.loads(line) for line in answer.stdout.splitlines()]
    assert {(row["gpu"], row["ofu"] and round(row["ofu"], 3)) for row in told} == {("GPU-a", 0.308), ("GPU-b", None)}
    assert told[0]["method"] == "sampled" and told[0]["power"] == 612 and "tensor_active" not in told[1]
    assert answer.stderr.startswith("OFU 30.8 %; 0.7 of 1 GPU missing")


def test_the_user_whose_process_computes_on_a_gpu_is_attached(machine):
    import pwd

    machine(gpu("GPU-a", processes=(os.getpid(),)), gpu("GPU-b"))
    told = [json.loads(line) for line in run("--for", "0.1s", "--json", "--attach-jobs").stdout.splitlines()]
    assert {(row["gpu"], row["user"]) for row in told} == {("GPU-a", pwd.getpwuid(os.getuid()).pw_name), ("GPU-b", None)}


def test_a_file_and_a_store_hold_what_was_sampled(machine, tmp_path):
    from ullage.store.store import Store

    machine(gpu("GPU-a"), gpu("GPU-b"))
    answer = run("--for", "0.3s", "--out", str(tmp_path / "x.parquet"), "--store", str(tmp_path / "store"), "--cluster", "c1")
    assert f"note: the samples are in {tmp_path / 'x.parquet'}" in answer.stdout
    table = pyarrow.parquet.read_table(tmp_path / "x.parquet")
    assert table.num_rows == Store.open(tmp_path / "store").info().rows >= 2 and set(table["cluster"].to_pylist()) == {"c1"}


def test_readings_that_come_together_since_one_was_late_are_all_printed(machine, monkeypatch, tmp_path):
    batches = [rows((at, {"tensor_active": 0.4, "sm_clock": 1.41e9}), gpu=gpu_) for at in (1, 2, 3) for gpu_ in ("GPU-a", "GPU-b")]
    monkeypatch.setattr(Sampler, "readings", lambda *_: iter([batches[:1], batches[1:]]))
    machine(gpu("GPU-a"), gpu("GPU-b"))
    lines = [json.loads(line) for line in run("--json", "--out", str(tmp_path / "x.parquet")).stdout.splitlines()]
    assert [line["gpu"] for line in lines].count("GPU-a") == 3
    assert len({(line["gpu"], line["time"]) for line in lines}) == pyarrow.parquet.read_table(tmp_path / "x.parquet").num_rows == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--every", "0.01s"], "--every 0.01s is too short"),
        (["--every", "1000000d"], "--every 1000000d is too long"),
        (["--out", "x.csv"], "this report has no .csv format"),
        (["--serve", "host"], "has no port"),
        (["--for", "soon"], "is not a span of time"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_read(arguments, words):
    with pytest.raises(UllageError, match=words):
        run(*arguments)


def started(*arguments, cwd):
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "tests.live.sampled_machine", "sample", "--every", "0.1s", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=cwd)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_it_with_what_was_measured_kept(tmp_path, number):
    process = started("--json", "--out", "x.parquet", "--store", "store", cwd=tmp_path)
    try:
        seen = [process.stdout.readline() for _ in range(4)]
        process.send_signal(number)
        rest, words = process.stdout.read(), process.stderr.read()  # `communicate` passes over lines that are read ahead already
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert "OFU 23.1 %" in words
    told = len(seen) + len(rest.splitlines())
    assert pyarrow.parquet.read_table(tmp_path / "x.parquet").num_rows == told
    assert sum(batch.num_rows for batch in read_samples(str(tmp_path / "x.parquet"))) == told


def test_a_reader_that_leaves_ends_it_and_the_file_is_whole(tmp_path):
    process = started("--json", "--out", "x.parquet", cwd=tmp_path)
    try:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stderr.close()
    assert pyarrow.parquet.read_table(tmp_path / "x.parquet").num_rows >= 2


def test_a_real_prometheus_scrapes_it_and_what_it_holds_is_what_was_measured(tmp_path):
    process = started("--serve", "0", cwd=tmp_path)
    try:
        line = process.stderr.readline()
        assert line.startswith("serving http://127.0.0.1:")
        target = line.split("//")[1].split("/")[0]
        with prometheus(tmp_path, [target]) as url:
            query = f"{url}/api/v1/query?query=ullage_ofu_ratio"
            wait_for(lambda: b"GPU-b" in (get(query) or b""))
            table = pa.Table.from_batches(read_samples(url)).to_pylist()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    found = {(row["gpu"], round(row["tensor_active"], 6), row["sm_clock"], row["power"], row["model"]) for row in table}
    assert found == {("GPU-a", 0.4, 1.41e9, 612, H100), ("GPU-b", 0.2, 1.41e9, 612, H100)}
