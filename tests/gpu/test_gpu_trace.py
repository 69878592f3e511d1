"""The check of traces against known loads: the arithmetic on perfect profiles, the program on a stand-in for PyTorch."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from gpu.check import CHECKS, NotMeasured, checks
from gpu.trace_program import ROUNDS, Known, Program, Recording, anonymous, main, recorder

from gpu import trace_program
from tests.gpu import test_gpu_load
from tests.gpu.gpu_double import Recordings, World

checks()  # registers them
ROOT = Path(__file__).parents[2]


def found(recordings):
    world = World()
    world.recorder = recordings
    return CHECKS["trace_trees"].function(world.machine())


@pytest.fixture(scope="module")
def good():
    return found(Recordings())


# --- the trees of perfect profiles ---


def test_perfect_profiles_pass_and_say_what_was_done(good):
    assert good.wrong == [] and good.notes == []
    rows = {(row["variant"], row["source"]): row for row in good.rows}
    assert list(rows) == [(v, "kineto") for v in trace_program.VARIANTS] + [("synchronous", "nsys"), ("graph", "nsys")]
    plain = rows["synchronous", "kineto"]
    # 10 rounds of a burst of 20 ms and a host that computes for 10 ms
    assert (plain["kernel"], plain["idle_useful"], plain["cause"]) == (0.2, pytest.approx(0.1, rel=0.01), "useful")
    assert plain["parallel_efficiency"] == pytest.approx(0.2 / 0.3, rel=0.01)
    # beside a busy GPU the host's time costs nothing
    assert rows["asynchronous", "kineto"]["idle_useful"] < 0.001 and rows["asynchronous", "kineto"]["parallel_efficiency"] > 0.99
    assert rows["copies", "kineto"]["memory"] == pytest.approx(0.0445015)
    assert good.answers["kernel_error"] == 0 and good.answers["graph_kernels"] == 1
    assert good.answers["source_difference"] < 1e-6


def test_traces_of_pytorch_and_the_trees_of_both_are_kept(good):
    assert sorted(good.recordings) == [*(f"trace_trees.{v}.json.gz" for v in sorted(trace_program.VARIANTS)), "trace_trees.txt"]
    assert json.loads(gzip.decompress(good.recordings["trace_trees.graph.json.gz"]))["traceEvents"]
    text = good.recordings["trace_trees.txt"].decode()
    assert "synchronous, nsys\n\nDevice parallel efficiency 66 %" in text and "/tmp" not in text


def test_kernels_that_last_longer_than_cuda_events_say_fail():
    # 3 % longer than known is beyond 2 %
    wrong = found(Recordings(stretched=1.03)).wrong
    assert wrong[0] == "kernel time of 'synchronous' by kineto is 0.2060 s where CUDA events say 0.2000 s"
    assert found(Recordings(stretched=1.01)).wrong == []


def test_replays_without_kernels_fail():
    wrong = found(Recordings(hidden=True)).wrong
    assert "of graph replays 0% of the kernels are recorded, and the report doesn't doubt it" in wrong


def test_a_computing_host_that_is_charged_wrongly_fails():
    class Twice(Recordings):
        def kineto(self, variant):
            recorded = super().kineto(variant)
            return replace(recorded, known=replace(recorded.known, host=0.05))

    wrong = found(Twice()).wrong
    assert any(text.startswith("'synchronous' by kineto idles 0.1") for text in wrong), wrong


def test_without_nsight_systems_that_is_said():
    findings = found(Recordings(nsys=False))
    assert findings.notes == ["Nsight Systems is not installed"] and findings.answers["source_difference"] is None and findings.wrong == []


def test_an_nsight_systems_that_fails_is_noted_and_the_rest_stands():
    class Broken(Recordings):
        def nsys(self, variant):
            raise subprocess.CalledProcessError(1, "nsys")

    findings = found(Broken())
    assert findings.notes[0] == "Nsight Systems could not record 'synchronous' (CalledProcessError)" and findings.wrong == []


def test_without_msgspec_nothing_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(NotMeasured, match="no msgspec"):
        found(Recordings())


def test_reading_needs_no_more_than_numpy_pyarrow_and_msgspec():
    blocker = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in 'duckdb ibis click rich scipy urllib3 polars pandas pynvml torch'.split():\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No()); sys.path[:0] = ['.', 'src']\n"
        "import ullage.profiles, ullage.reports.trace.trace, ullage.render.trace\n"
        "from ullage.traces.trace import TRACES\n"
        "print(len(list(TRACES.values())))\n"
    )
    done = subprocess.run([sys.executable, "-c", blocker], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) >= 4, done.stderr


# --- the program ---


class Torch(test_gpu_load.Torch):
    """Products of 2.5 ms and copies of 4 ms on a GPU in simulated time."""

    uint8 = "uint8"

    def __init__(self):
        super().__init__(seconds=0.0025)
        self.cuda.profiler = type("Profiler", (), {"start": staticmethod(lambda: None), "stop": staticmethod(lambda: None)})

    def randn(self, *shape, device, dtype):
        return super().randn(2, 2, device=device, dtype=dtype)

    def empty(self, *shape, dtype, device="cpu", pin_memory=False):
        tensor = super().empty(2, 2, device=device, dtype=dtype)
        tensor.copy_ = self._copied
        return tensor

    def _copied(self, source, non_blocking):
        self.time += 0.004


def clock():
    """Return a clock that each look moves on by 1 ms."""
    now = [0.0]

    def look():
        now[0] += 0.001
        return now[0]

    return look


@pytest.mark.parametrize("variant", trace_program.VARIANTS)
def test_the_program_knows_what_it_did(variant):
    # bursts of 20 ms are 8 products of 2.5 ms; the host looks at its clock until 10 ms are over
    program = Program(Torch(), clock())
    assert program.products == 8
    known = program.run(variant)
    assert known.products == 8 * ROUNDS and known.kernel == pytest.approx(ROUNDS * 0.020)
    assert known.memory == pytest.approx(ROUNDS * 0.004 if variant == "copies" else 0)
    assert known.host == pytest.approx(ROUNDS * 0.010, abs=ROUNDS * 0.0011)


def test_the_program_prints_what_it_did_for_nsight_systems(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", Torch())
    main("graph")
    assert Known(**json.loads(capsys.readouterr().out)).kernel == pytest.approx(0.2)


def test_pytorchs_profiler_is_started_twice_and_the_second_trace_kept():
    exported, torch = [], Torch()

    class Profile:
        def export_chrome_trace(self, path):
            exported.append(path)
            Path(path).write_text('{"host_name": "alice", "traceEvents": []}')

    class Profiler:
        ProfilerActivity = type("Activity", (), {"CPU": 0, "CUDA": 1})

        @staticmethod
        @contextmanager
        def profile(activities):
            yield Profile()

    torch.profiler = Profiler
    recorded = Recording(replace(World().machine(), find_torch=lambda: torch)).kineto("copies")
    assert recorded.name == "copies.json" and len(exported) == 1 and recorded.trace == b'{"host_name": "node", "traceEvents": []}'


def test_nsight_systems_is_run_and_its_report_exported(monkeypatch, tmp_path):
    ran = []
    known = Known(0.2, 0.0, 0.1, 80)

    def run(*command):
        ran.append(command)
        if command[1] == "export":
            Path(next(word for word in command if word.startswith("--output=")).removeprefix("--output=")).write_bytes(b"database")
        return "Capture range started\n" + json.dumps(asdict(known)) + "\n"

    monkeypatch.setattr(trace_program, "which", lambda name: "nsys")
    monkeypatch.setattr(trace_program, "_ran", run)
    recorded = Recording(World().machine()).nsys("graph")
    assert (recorded.known, recorded.name, recorded.trace) == (known, "graph.sqlite", b"database")
    assert [command[1] for command in ran] == ["profile", "export"] and "--cuda-graph-trace=node" in ran[0]
    monkeypatch.setattr(trace_program, "which", lambda name: None)
    assert Recording(World().machine()).nsys("graph") is None


def test_a_machine_without_pytorch_records_nothing():
    with pytest.raises(NotMeasured, match="no PyTorch"):
        recorder(World().machine(loaded=False))


def test_what_names_the_machine_is_taken_out_of_a_trace():
    trace = b'{\n"host_name": "alice", "uuid": "GPU-12-34", "traceName": "/home/alice/t.json", "x": "12-34"}'
    said = anonymous(trace, "GPU-12-34")
    assert b"alice" not in said and b"12-34" not in said and json.loads(said)["host_name"] == "node"
