"""Trees from a recording that still grows: the sums worked out by hand, the same trees as the finished file gives, memory bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.recorder.recordings import KERNEL, UPTIME, Made, busy, call, copy, host, kernel
from tests.traces.test_trace_sources_agree import BESIDE_KINETO, SCENARIOS, regions
from ullage import read_trace
from ullage.cupti.chunks import HEADER, MAGIC, HostKind, chunks
from ullage.errors import UllageError
from ullage.live import following as module
from ullage.live.following import Following
from ullage.live.times import DeviceTimes, Times
from ullage.live.trees import ProcessTree, tree
from ullage.simulate.traces.recording import write
from ullage.simulate.traces.training import TrainingPlan, training

HEAVY = ("click", "duckdb", "ibis", "msgspec", "polars", "rich", "urllib3")


def seen(path: Path, region: str | None = None, *, now: int | None = None, keep: int = 10**10) -> ProcessTree:
    following = Following(path, keep)
    following.advance()
    return following.tree(region, now=None if now is None else now + UPTIME)


def test_the_tree_of_a_recording_is_the_one_worked_out_by_hand(tmp_path: Path) -> None:
    # of 40 ns the device computes 15 and only copies 10; the host is in CUDA for 14: see `recordings.busy`
    found = seen(busy(tmp_path / "a.ullage"))
    assert found.elapsed == 40
    assert found["device_parallel_efficiency"] == 15 / 40
    assert found["device_communication_efficiency"] == 15 / 25
    assert found["orchestration_efficiency"] == 25 / 40
    assert found["host_parallel_efficiency"] == 26 / 40
    assert found["device_offload_efficiency"] == 26 / 40


def test_a_regions_tree_is_of_what_happens_within_its_spans(tmp_path: Path) -> None:
    # the region is open 5-10 and 18-28: kernels 5-10 of K = 5, copies 18-27 of M = 9, calls 20-28 of W = 8, E = 15
    path = tmp_path / "a.ullage"
    busy(path)
    made = Made(path).host(host(5, 10, 1), host(18, 28, 1, serial=2), host(19, 22, 1, serial=3)).named({1: "step"}, flags=1)
    found = seen(made.clocks(40).end(), "step")
    assert found.elapsed == 15
    assert found.device_totals is not None and found.host_totals is not None
    assert (found.device_totals.kernel_time, found.device_totals.memory_time) == (5, 9)
    assert (found.host_totals.useful_time, found.host_totals.offload_time) == (7, 8)


@pytest.mark.parametrize("name", [*SCENARIOS, *BESIDE_KINETO])
def test_it_is_the_tree_that_the_finished_file_gives(name: str, tmp_path: Path) -> None:
    scenario = (SCENARIOS | BESIDE_KINETO)[name]
    for path in write(scenario, tmp_path)[:2]:
        run, following = read_trace(path), Following(path)
        following.advance()
        for region in regions(scenario):
            try:
                expected = run.tree(region=region)
            except UllageError:
                continue  # this rank is never in it
            found = following.tree(region)
            assert (found.host, found.device, found.mode) == (expected.host, expected.device, expected.report.mode), region


@pytest.fixture(scope="module")
def six_steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str | None, ProcessTree]]:
    """Six steps of 2 ms, written a thread after the other, and the trees of the whole file."""
    [path] = write(training(TrainingPlan(ranks=1, steps=6, layers=4)), tmp_path_factory.mktemp("six"), per_buffer=40)
    return path, {region: seen(path, region) for region in (None, "forward", "backward")}


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_however_often_and_whenever_it_is_asked_the_sums_are_the_same(
    data: st.DataObject, six_steps: tuple[Path, dict[str | None, ProcessTree]], tmp_path: Path
) -> None:
    # two steps are kept, or all; the file may end in the middle of a chunk
    path, expected = six_steps
    whole = path.read_bytes()
    with path.open("rb") as file:
        ends = [chunk.offset + HEADER.size + len(chunk.payload) for chunk in chunks(file, "a")]
    part = tmp_path / "part.ullage"
    following = Following(part, keep=data.draw(st.sampled_from([4_000_000, 10**10])))
    for length in sorted({len(MAGIC), *data.draw(st.lists(st.sampled_from(ends), max_size=6)), len(whole)}):
        part.write_bytes(whole[: min(length + data.draw(st.integers(0, 20)), len(whole))])
        following.advance()
        following.tree()
    for region, tree_of in expected.items():
        found = following.tree(region)
        assert (found.host_totals, found.device_totals) == (tree_of.host_totals, tree_of.device_totals)


def long(path: Path, steps: int) -> Path:
    """Steps of 1 s: a call of 10 ms, a kernel of 0.4 s; every step is a region, in a file that tells of them one by one."""
    made = Made(path).clocks(0).named({KERNEL: "gemm"}).named({1: "step"}, flags=1)
    for step in range(steps):
        at = step * 10**9
        made.buffer(call(at, at + 10**7, tie=step + 1), kernel(at + 10**8, at + 5 * 10**8, tie=step + 1))
        made.host(host(at, at + 9 * 10**8, 1, serial=step + 1)).clocks(at + 10**9)
    return made.killed()


def test_what_is_old_is_summed_up_and_let_go(tmp_path: Path) -> None:
    path = long(tmp_path / "a.ullage", 100)
    following = Following(path)
    following.advance()
    found = following.tree("step")
    # 100 regions of 0.9 s with a kernel of 0.4 s in each
    assert (found.elapsed, found["device_parallel_efficiency"]) == (90 * 10**9, 4 / 9)
    assert following.tree()["device_parallel_efficiency"] == 0.4
    assert following.rows < 50  # of 300: those of the last ten steps


def test_a_launch_whose_kernel_may_still_run_leaves_the_device_in_doubt(tmp_path: Path) -> None:
    # launched at 60, no record until 100: of the 40 ns since then nobody knows; then it comes: 61-95
    path = tmp_path / "a.ullage"
    made = Made(path).clocks(0).buffer(call(0, 1, tie=1), kernel(1, 11, tie=1), call(60, 61, tie=2))
    following = Following(path)
    following.advance()
    device = following.tree(now=100 + UPTIME).device
    assert device is not None and (device.value, device.low, device.high) == (0.1, 0.1, 0.5)
    made.buffer(kernel(61, 95, tie=2)).clocks(100).end()
    following.advance()
    device = following.tree(now=100 + UPTIME).device
    assert device is not None and device.exact and device.value == 0.44


def test_a_call_that_is_not_over_leaves_the_host_in_doubt(tmp_path: Path) -> None:
    # the last call that is known ended at 20; at 100 the host may be waiting since then, or computing
    path = Made(tmp_path / "a.ullage").clocks(0).buffer(call(0, 20, tie=1), kernel(20, 40, tie=1)).killed()
    host_tree = seen(path, now=100).host
    assert host_tree is not None and (host_tree.value, host_tree.low, host_tree.high) == (0.8, 0, 0.8)


def test_a_long_kernel_holds_the_sums_up_until_its_record_comes(tmp_path: Path) -> None:
    # launched at 1 s, it runs until 31 s; asked at 30 s nothing after 1 s may be let go
    second = 10**9
    path = tmp_path / "a.ullage"
    made = (
        Made(path).clocks(0).buffer(call(0, 1000, tie=1), kernel(0, second, tie=1), call(second, second + 1000, tie=2)).clocks(30 * second)
    )
    following = Following(path)
    following.advance()
    following.tree(now=30 * second + UPTIME)
    made.buffer(kernel(second, 31 * second, tie=2)).clocks(40 * second).end()
    following.advance()
    found = following.tree()
    assert found["device_parallel_efficiency"] == 31 / 40
    assert not any("too late" in note or "came after" in note for note in found.notes)


def test_what_comes_after_its_time_was_summed_up_is_counted(tmp_path: Path) -> None:
    path = long(tmp_path / "a.ullage", 100)
    following = Following(path)
    following.advance()
    following.tree()
    Made(path).buffer(kernel(0, 7)).clocks(100 * 10**9).end()
    following.advance()
    assert "1 events came after their time had been summed up, and are left out" in following.tree().notes


def test_a_region_that_is_still_open_lasts_until_now(tmp_path: Path) -> None:
    path = tmp_path / "a.ullage"
    made = Made(path).clocks(0).named({KERNEL: "gemm"}).named({1: "epoch"}, flags=1).host(host(10, 0, 1, HostKind.OPEN))
    made.buffer(call(10, 12, tie=1), kernel(20, 40, tie=1))
    assert seen(path, "epoch", now=50).elapsed == 40
    assert seen(path, "epoch", now=110)["device_parallel_efficiency"] == 0.2
    assert seen(path, "evaluation", now=50).host is None


def test_a_wait_that_is_not_over_is_communication_and_summed_up_once(tmp_path: Path) -> None:
    # a barrier from 10 s on: seen open at 30 s, when all before 20 s is summed up; it ends at 35 s
    second, path = 10**9, tmp_path / "a.ullage"
    made = Made(path).clocks(0).named({1: "MPI_Barrier"}, flags=1).host(host(10 * second, 30 * second, 1, HostKind.WAITING))
    following = Following(path)
    for moment, waited in ((30, 20), (40, 25)):
        made.clocks(moment * second)
        following.advance()
        totals = following.tree(now=moment * second + UPTIME).host_totals
        assert totals is not None and totals.useful_time == (moment - waited) * second
        made.host(host(10 * second, 35 * second, 1, HostKind.MPI))
    assert not any("came after" in note for note in following.tree().notes)


def test_what_was_not_recorded_is_not_looked_at(tmp_path: Path) -> None:
    # stopped 20-50: of the other 70 ns of 100 the kernels take 20
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(call(0, 1, tie=1), kernel(0, 10, tie=1))
    made.info(paused=20 + UPTIME).info(resumed=50 + UPTIME).buffer(call(59, 60, tie=2), kernel(60, 70, tie=2))
    found = seen(made.clocks(100).end())
    assert (found.elapsed, found["device_parallel_efficiency"]) == (70, 2 / 7)


def test_the_last_seconds_have_a_tree_of_their_own(tmp_path: Path) -> None:
    following = Following(long(tmp_path / "a.ullage", 30))
    following.advance()
    recent, whole = following.recent(2 * 10**9 + 5 * 10**8)  # 27.5-30: kernels 28.1-28.5 and 29.1-29.5
    assert (recent.name, recent.elapsed, recent["device_parallel_efficiency"]) == ("last 2.5 s", 25 * 10**8, 0.32)
    assert whole.elapsed == 30 * 10**9


def test_a_million_rows_are_summed_up_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 40)
    monkeypatch.setattr(module, "KEPT", 10**9)
    following = Following(long(tmp_path / "a.ullage", 100), keep=10**9)
    following.advance()
    assert following.rows < 100
    assert following.tree("step")["device_parallel_efficiency"] == 4 / 9


def test_a_file_that_is_not_there_yet_or_empty_has_no_tree(tmp_path: Path) -> None:
    path = tmp_path / "a.ullage"
    with pytest.raises(UllageError, match="can't be read: No such file"):
        Following(path).advance()
    path.write_bytes(MAGIC[:3])
    assert seen(path).notes == ("nothing is recorded yet",)
    path.write_bytes(MAGIC)
    assert seen(path).notes == ("nothing is recorded yet",)


def test_the_busiest_thread_that_launches_is_the_hosts_lane(tmp_path: Path) -> None:
    # a watchdog waits for 90, the main thread launches for 20, a loader copies for 10
    made = Made(tmp_path / "a.ullage").clocks(0)
    made.buffer(call(0, 90, "cudaEventSynchronize", thread=5), call(0, 20, tie=1), call(0, 10, "cudaMemcpyAsync", tie=2, thread=7))
    found = seen(made.buffer(kernel(0, 50, tie=1), copy(0, 5, tie=2)).clocks(100).end())
    assert found.host_totals is not None and found.host_totals.offload_time == 20


def test_it_prints_as_a_tree_and_as_plain_data() -> None:
    found = tree(
        "forward", Times(100, 20, {1: 40}, {0: DeviceTimes(60, 0, 20, unknown=10)}), lane=1, devices=1, mode="talp", notes=("half",)
    )
    assert str(found).splitlines() == [
        "forward, 1e-07 s, talp mode",
        "Host    Parallel efficiency                   0.40  ████████············",
        "          MPI parallel efficiency             0.80  ████████████████····",
        "            Communication efficiency          0.80  ████████████████····",
        "            Load balance                      1.00  ████████████████████",
        "          Device offload efficiency           0.50  ██████████··········",
        "Device  Parallel efficiency                   0.60  ████████████········",
        "          Load balance                        1.00  ████████████████████",
        "          Communication efficiency            0.75  ███████████████·····",
        "          Orchestration efficiency            0.80  ████████████████····",
        "note: half",
    ]
    data = found.json()
    assert data["elapsed_ns"] == 100
    assert data["device"]["device_parallel_efficiency"] == 0.6
    assert data["bounds"]["device"]["device_parallel_efficiency"] == [0.6, 0.7]
    assert data["host_totals"]["useful_time"] == 40
    doubtful = tree("forward", Times(100, 20, {1: 40}, {0: DeviceTimes(60, unknown=40)}), lane=1, devices=1, mode="talp")
    assert "Device  Parallel efficiency                      ?  cannot tell: 0.60 to 1.00" in str(doubtful)
    with pytest.raises(KeyError, match="no efficiency is called 'speed'; there are host_parallel_efficiency"):
        found["speed"]


def test_a_bare_gpu_node_computes_trees_with_numpy_and_pyarrow_alone(tmp_path: Path) -> None:
    path = busy(tmp_path / "a.ullage")
    code = (
        "import sys\n"
        "class Refuse:\n"
        f"    def find_spec(self, name, *_):\n        if name.partition('.')[0] in {HEAVY}: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import ullage.live.regions\n"
        "assert 'numpy' not in sys.modules\n"
        "from pathlib import Path\n"
        "from ullage.live.following import Following\n"
        "following = Following(Path(sys.argv[1])); following.advance()\n"
        "print(following.tree()['device_parallel_efficiency'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0.375\n", "")


def test_where_a_program_has_no_pyarrow_trees_are_notes(tmp_path):
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import ullage, ullage.live\n"
        f"ullage.live.start({str(tmp_path)!r}, cuda=False)\n"
        "with ullage.region('forward') as forward: pass\n"
        "for tree in (forward.tree(), ullage.live.tree(), *ullage.live.recent(10**9)): print(tree.notes[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4 and all("need NumPy and pyarrow" in line for line in done.stdout.splitlines())
