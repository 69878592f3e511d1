"""What samples the GPUs beside a program: which counters are taken, what is said of them, and how it ends."""

from __future__ import annotations

import json
import threading
import time

import pyarrow.parquet as pq
import pytest

from tests.cupti import cupti_double
from tests.live.nvml_double import Gpu, Nvml
from tests.live.sampled_machine import Load
from ullage.errors import UllageError
from ullage.live.sampling.beside_a_program import ASK, GPM, HELD, PM, Beside
from ullage.live.sampling.pm_apart import Apart
from ullage.live.sampling.waiting import Ended, Until
from ullage.tables import samples


def test_waiting_wakes_at_the_end_for_one_reading_more():
    ended = threading.Event()
    until = Until(ended, shortest=0.0)
    until.sleep(0.0)
    ended.set()
    until.sleep(60.0)
    with pytest.raises(Ended):
        until.sleep(60.0)


class Sampled:
    """A sampling process that gives these batches, then is refused (`refused`), or waits for the end."""

    def __init__(self, *batches, refused="", notes=()):
        self.given, self.refused, self.notes, self.over = batches, refused, list(notes), threading.Event()

    def batches(self):
        yield from self.given
        if self.refused:
            raise UllageError(self.refused)
        assert self.over.wait(30)

    def end(self):
        self.over.set()

    kill = end


def batch(**values):
    return samples({name: [value] for name, value in {"time": 1_767_225_600_000, "gpu": "GPU-1", **values}.items()})


def beside(tmp_path, counters="gpm", gpus=(), apart=None):
    """Sample beside nothing for a moment; return what was told and the rows."""
    found = Beside(tmp_path, counters, interval=0.1, nvml=lambda: Nvml(gpus), apart=lambda: apart)
    found.start()
    if apart is None or apart.refused:
        wait_for(lambda: all(gpu.samples_taken > 1 or not gpu.gpm for gpu in gpus))
    found.stop()
    rows = pq.read_table(found.path).to_pylist() if found.path.exists() else []
    said = json.loads(next(tmp_path.glob("telemetry-*.json")).read_text())
    assert said["notes"] == found.told.notes
    return found.told, rows


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def hopper():
    return Gpu("GPU-1", activity=Load(0.4, counted=True))


def ampere():
    return Gpu("GPU-1", name="NVIDIA A100-SXM4-80GB", gpm=False)


def test_gpm_comes_first_where_there_is_one(tmp_path):
    told, rows = beside(tmp_path, gpus=[hopper()])
    assert (told.by, told.notes) == (GPM, []) and rows[-1]["tensor_active"] == pytest.approx(0.4)


def test_pm_sampling_says_what_it_may_do(tmp_path):
    told, rows = beside(tmp_path, "pm", gpus=[ampere()], apart=Sampled(batch(tensor_active=0.25), notes=["7 lost"]))
    assert (told.by, told.notes) == (PM, ["7 lost", HELD]) and [row["tensor_active"] for row in rows] == [0.25]


def test_pm_sampling_can_be_asked_for(tmp_path):
    told, rows = beside(tmp_path, "pm", [hopper()], Sampled(batch(tensor_active=0.25)))
    assert told.by == PM and [row["tensor_active"] for row in rows] == [0.25]


def test_without_gpm_it_is_named_and_not_begun_unasked(tmp_path):
    told, rows = beside(tmp_path, gpus=[ampere()])
    assert told.by == "" and "tells no activity" in told.notes[0] and told.notes[-1] == ASK and rows[-1]["sm_clock"] == 1.41e9


def test_gpm_stands_in_where_pm_sampling_is_refused(tmp_path):
    told, rows = beside(tmp_path, "pm", [hopper()], Sampled(refused="no privileges"))
    assert told.by == GPM and told.notes == ["PM sampling is not possible here: no privileges"] and rows


def test_where_neither_is_possible_both_reasons_are_said(tmp_path):
    told, _ = beside(tmp_path, "pm", gpus=[ampere()], apart=Sampled(refused="no privileges"))
    assert told.by == "" and told.notes[0] == "PM sampling is not possible here: no privileges"
    assert "GPM needs Hopper or later" in told.notes[1]


def test_without_nvml_and_pm_sampling_a_program_still_runs(tmp_path):
    def missing():
        raise UllageError("nvidia-ml-py is not installed")

    found = Beside(tmp_path, "pm", nvml=missing, apart=lambda: Sampled(refused="no driver"))
    found.start()
    found.stop()
    assert found.told.notes == ["PM sampling is not possible here: no driver", "nvidia-ml-py is not installed"]
    assert not list(tmp_path.glob("*.parquet")) and not list(tmp_path.glob(".*"))


def test_the_last_moments_of_a_program_are_read(tmp_path):
    # with an interval of a minute the one reading is that of the end
    found = Beside(tmp_path, "gpm", interval=60.0, nvml=lambda: Nvml([gpu]))
    gpu = hopper()
    found.start()
    wait_for(lambda: gpu.samples_taken)
    found.stop()
    assert pq.read_table(found.path).num_rows == 1


def test_mig_instances_are_told_by_their_own_uuids(tmp_path):
    gpu = Gpu("GPU-1", activity=Load(0.4), mig={0: "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}, instances={0: 7})
    found = Beside(tmp_path, "gpm", interval=0.1, nvml=lambda: Nvml([gpu]))
    found.start()
    wait_for(lambda: gpu.samples_taken)
    found.stop()
    assert found.told.instances == {"MIG-1-0": ("GPU-1", "1g.10gb/7")}


def test_where_there_is_no_driver_no_process_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr("ullage.live.sampling.beside_a_program.cuda_version", lambda: None)
    found = Beside(tmp_path, "pm", interval=0.1, nvml=lambda: Nvml([ampere()]))
    found.start()
    found.stop()
    assert found.told.notes[0] == "PM sampling is not possible here: there is no NVIDIA driver on this machine"


# -- in a process of its own ------------------------------------------------------------------------------------------


def apart(**more):
    return Apart(0.1, environment=cupti_double.environment(**more))


def test_a_refusal_reaches_whoever_began_it():
    with pytest.raises(UllageError, match=r"GPU 0 \(Double of an H200\) can't be sampled"):
        list(apart(CUPTI_DOUBLE_FAULTS="privileges").batches())


def test_a_library_that_crashes_is_refused():
    with pytest.raises(UllageError, match="crashes when it is asked its version"):
        list(apart(CUPTI_DOUBLE_FAULTS="crash").batches())


def test_a_process_that_dies_is_an_error_and_no_more(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sampling = Apart(0.1)
    with pytest.raises(UllageError, match=r"the process that samples the GPUs died \(signal 6\)"):
        list(sampling.batches())


def test_readings_come_through_the_pipe_as_they_were_and_end_when_they_are_to(tmp_path, monkeypatch):
    # in place of CUPTI: 0.1 + 0.1 × number, by a module that the process loads first
    (tmp_path / "sitecustomize.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sampling = Apart(0.1)
    rows = []
    for number, found in enumerate(sampling.batches()):
        rows += found.to_pylist()
        if number == 1:
            sampling.end()
    assert [row["gpu"] for row in rows][:2] == ["GPU-0", "GPU-1"] and rows[1]["tensor_active"] == pytest.approx(0.2)
    assert sampling.notes == ["4 readings left out", "noted"]


STAND_IN = """
from contextlib import contextmanager
from ullage.live.sampling import pm
from ullage.cupti import library
from ullage.sources.machine import GpuLibrary
from ullage.tables import samples

@contextmanager
def opened(options, problems, host, **more):
    number = iter(range(1000))
    print("a library that talks")
    def read(moment):
        n = next(number)
        return samples({"time": [moment], "gpu": [f"GPU-{n}"], "tensor_active": [0.1 + 0.1 * n]})
    problems.drop("readings", 4)
    problems.note("noted")
    yield GpuLibrary(read, shortest=0.0)

pm.opened, library.find = opened, lambda path=None: None
"""


def test_a_process_whose_parent_is_gone_ends(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(STAND_IN)
    sampling = Apart(0.1, environment={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"})
    readings = sampling.batches()
    next(readings)
    readings.close()
    assert sampling._process.poll() is not None


@pytest.mark.parametrize(("everything", "expected"), [(False, {"CUDA_VISIBLE_DEVICES", "PATH"}), (True, {"PATH"})])
def test_the_process_gets_no_injection_and_for_several_ranks_no_gpu_is_hidden(monkeypatch, everything, expected):
    seen = set()
    monkeypatch.setattr("ullage.live.sampling.pm_apart.subprocess.Popen", lambda command, env, **_: seen.update(env))
    Apart(0.1, everything=everything, environment={"CUDA_INJECTION64_PATH": "/r.so", "CUDA_VISIBLE_DEVICES": "3", "PATH": "/usr/bin"})
    assert seen == expected
