"""Trees of several ranks while they run: worked out by hand, those of the finished reader on the same files, and of real ranks."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.command_line import ask
from tests.recorder.recordings import EPOCH, KERNEL, PROCESS, Made, call, host, kernel
from tests.recorder.run_runs import ULLAGE, environment, mpirun
from tests.recorder.test_run_ranks import ranks_program
from tests.traces.test_trace_sources_agree import SCENARIOS, regions
from ullage import live, read_trace
from ullage.cupti.chunks import ChunkType, ChunkWriter, HostKind
from ullage.errors import UllageError
from ullage.live.all_ranks import AllRanks, Together, lateness
from ullage.questions.top import watched_run
from ullage.render.rank_trees import view
from ullage.simulate.traces.recording import AHEAD, UPTIME, write
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.totals import DeviceTotals
from ullage.traced import Traced
from ullage.views.text import text

SECOND = 10**9


def seen(folder: Path, region: str | None = None) -> Together:
    followed = AllRanks(folder)
    followed.look()
    return followed.together(region)


def rank(folder: Path, number: int, ranks: int = 2, *, pid: int = PROCESS) -> Made:
    """One rank's recording, where `ullage run` puts it."""
    own = folder / f"rank-{number:06d}"
    own.mkdir(exist_ok=True)
    return Made(own / f"node-1-{pid + number}.ullage", rank=number, ranks=ranks, pid=pid + number).named({1: "MPI_Barrier"}, flags=1)


def waits(start: int, end: int) -> tuple[int, ...]:
    return host(start, end, 1, HostKind.MPI)


def test_trees_of_two_ranks_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    # told until 100 and until 90, so looked at until 90: rank 0 waits 5-15, 40-60 and 80-90, rank 1 (from 20 on) 70-75; useful 50 and 65
    rank(tmp_path, 0).clocks(0).host(waits(5, 15), waits(40, 60), waits(80, 95)).clocks(100).killed()
    rank(tmp_path, 1).clocks(20).host(waits(70, 75)).clocks(90).killed()
    found = seen(tmp_path)
    assert found.window == (EPOCH, EPOCH + 90)
    assert [one.share.useful for one in found.ranks] == [50, 65]
    assert found.tree["host_parallel_efficiency"] == 115 / 180
    assert found.tree["host_load_balance"] == 115 / 130
    assert found.tree["host_communication_efficiency"] == 65 / 90
    assert lateness(found) == [0, 15]
    assert found.complete and not found.over
    assert found.tree.notes[0] == "2 of 2 ranks seen, until 00:00:00 UTC"


def test_the_last_seconds_of_all_ranks_have_trees_of_their_own(tmp_path: Path) -> None:
    # of the last 4 s rank 0 waits 1 s and rank 1 none
    rank(tmp_path, 0).clocks(0).host(waits(0, 50 * SECOND), waits(97 * SECOND, 98 * SECOND)).clocks(100 * SECOND).killed()
    rank(tmp_path, 1).clocks(0).host(waits(0, SECOND)).clocks(100 * SECOND).killed()
    followed = AllRanks(tmp_path)
    followed.look()
    found = followed.together(last=4 * SECOND).tree
    assert (found.name, found.elapsed, found["host_parallel_efficiency"]) == ("last 4 s", 4 * SECOND, 7 / 8)


def test_a_rank_that_is_over_holds_nobody_up(tmp_path: Path) -> None:
    # it called MPI_Finalize at 40: what the other does until 100 counts, and that this one does nothing then
    rank(tmp_path, 0).clocks(0).host(waits(0, 10)).clocks(100).killed()
    made = rank(tmp_path, 1).named({2: "MPI_Finalize"}, flags=1).clocks(0).host(waits(0, 10), host(40, 45, 2, HostKind.MPI))
    made.clocks(50).killed()
    found = seen(tmp_path)
    assert [one.share.times.elapsed for one in found.ranks] == [100, 40]
    assert found.tree["host_parallel_efficiency"] == (90 + 30) / 200


def test_of_a_job_of_four_two_ranks_are_seen_and_that_is_said(tmp_path: Path) -> None:
    for number in range(2):
        rank(tmp_path, number, 4).clocks(0).host(waits(0, 5)).clocks(100).killed()
    found = seen(tmp_path)
    assert not found.complete and found.tree.notes[0].startswith("2 of 4 ranks seen")


def test_a_rank_that_is_silent_ends_the_time_in_common_and_is_named(tmp_path: Path) -> None:
    rank(tmp_path, 0).clocks(0).host(waits(0, SECOND)).clocks(60 * SECOND).killed()
    rank(tmp_path, 1).clocks(0).host(waits(0, SECOND)).clocks(20 * SECOND).killed()
    found = seen(tmp_path)
    assert found.tree.elapsed == 20 * SECOND
    assert "rank 1 has told nothing for 40 s" in found.tree.notes


def test_a_rank_that_was_killed_holds_nobody_up_for_ever(tmp_path: Path) -> None:
    # silent since 20 s, at 90 s it counts to its own end; when it tells something after all, it is one of the others again
    rank(tmp_path, 0).clocks(0).host(waits(0, SECOND)).clocks(90 * SECOND).killed()
    made = rank(tmp_path, 1).clocks(0).host(waits(0, 10 * SECOND)).clocks(20 * SECOND)
    followed = AllRanks(tmp_path)
    followed.look()
    found = followed.together()
    assert [one.share.times.elapsed for one in found.ranks] == [90 * SECOND, 20 * SECOND]
    assert found.tree["host_parallel_efficiency"] == (89 + 10) / 180
    assert "rank 1 has told nothing for 70 s: taken to have ended" in found.tree.notes
    made.clocks(80 * SECOND).killed()
    followed.look()
    assert [one.share.times.elapsed for one in followed.together().ranks] == [80 * SECOND, 80 * SECOND]


def test_a_rank_that_comes_late_and_behind_has_the_others_read_again(tmp_path: Path) -> None:
    # 0-50 s of rank 0 are summed up when rank 1 is seen, which has told until 20 s
    made = rank(tmp_path, 0).clocks(0).host(waits(0, 30 * SECOND)).clocks(60 * SECOND)
    followed = AllRanks(tmp_path)
    followed.look()
    assert followed.together().tree["host_parallel_efficiency"] == 0.5
    other = rank(tmp_path, 1).clocks(0).host(waits(5 * SECOND, 15 * SECOND)).clocks(20 * SECOND)
    followed.look()
    assert followed.together().tree["host_parallel_efficiency"] == 10 / 40
    other.clocks(60 * SECOND).end()
    made.clocks(60 * SECOND).end()
    followed.look()
    found = followed.together()
    assert (found.over, found.tree["host_parallel_efficiency"]) == (True, 80 / 120)


def test_a_run_that_turns_out_to_begin_later_is_read_again(tmp_path: Path) -> None:
    # MPI_Init returns at 40 s, when 0-30 s are summed up
    made = rank(tmp_path, 0, 1).named({2: "MPI_Init"}, flags=1).clocks(0).host(host(1, 2, 3)).clocks(40 * SECOND)
    followed = AllRanks(tmp_path)
    followed.look()
    assert followed.together().tree.elapsed == 40 * SECOND
    made.host(host(0, 40 * SECOND, 2, HostKind.MPI), waits(45 * SECOND, 50 * SECOND)).clocks(60 * SECOND).killed()
    followed.look()
    found = followed.together().tree
    assert (found.elapsed, found["host_parallel_efficiency"]) == (20 * SECOND, 0.75)


def test_devices_that_ranks_share_have_no_tree_and_a_note(tmp_path: Path) -> None:
    gpu = {"devices": [{"index": 0, "name": "H100", "uuid": "GPU-01"}]}
    for number in range(2):
        made = rank(tmp_path, number).info(**gpu).clocks(0).named({KERNEL: "gemm"})
        made.buffer(call(0, 1, tie=1), kernel(2, 50, tie=1)).clocks(100).killed()
    found = seen(tmp_path).tree
    assert found.host is not None and found.device is None
    assert any(note.startswith("1 of the devices are used by several processes") for note in found.notes)


def test_a_damaged_recording_is_said_and_the_others_are_looked_at(tmp_path: Path) -> None:
    rank(tmp_path, 0).clocks(0).host(waits(0, 5)).clocks(100).killed()
    (tmp_path / "rank-000001").mkdir()
    (tmp_path / "rank-000001" / "b.ullage").write_bytes(b"no recording of anything")
    found = seen(tmp_path)
    assert not found.complete and len(found.ranks) == 1
    assert any("is no recording of Ullage" in note for note in found.tree.notes)


def test_what_the_ranks_have_to_say_is_said_once(tmp_path: Path) -> None:
    for number in range(2):
        rank(tmp_path, number).info(kinds={"10": 35, "4": 0}).clocks(0).host(waits(0, 5)).clocks(100).killed()
    assert seen(tmp_path).tree.notes.count("no kernels were recorded: there is no device tree") == 1


def test_nothing_and_no_folder(tmp_path: Path) -> None:
    assert seen(tmp_path).tree.notes == ("nothing is recorded yet",)
    with pytest.raises(UllageError, match="can't be read: No such file"):
        seen(tmp_path / "nowhere")


OF_SEVERAL = {name: scenario for name, scenario in SCENARIOS.items() if len(scenario.ranks) > 1}  # none shares its devices


def assert_same(found: Together, run: Traced, region: str | None) -> None:
    """The host's tree is that of `ullage trace`; so is the device's, where no device is used by several."""
    expected = run.tree(region=region)
    assert found.tree.host_totals is not None and found.tree.host is not None and expected.host is not None
    assert found.tree.host_totals == replace(expected.report.whole.host_totals, calls=None), region
    assert [node.value for _, node in found.tree.host.walk()] == [node.value for _, node in expected.host.walk()]
    if found.tree.device_totals is not None:
        theirs = expected.report.whole.device_totals
        assert theirs is not None
        for name in ("devices", "elapsed", "kernel_time", "collective_time", "memory_time", "max_kernel_time", "max_active_time"):
            assert getattr(found.tree.device_totals, name) == getattr(theirs if found.tree.mode == "ai" else in_talp(theirs), name), name


def in_talp(totals: DeviceTotals) -> DeviceTotals:
    return totals.counting_collectives()


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_they_are_the_trees_that_the_finished_files_give(name: str, tmp_path: Path) -> None:
    scenario = OF_SEVERAL[name]
    write(scenario, tmp_path)
    run = read_trace(tmp_path)
    for region in regions(scenario):
        found = seen(tmp_path, region)
        assert found.over
        assert_same(found, run, region)


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_however_the_files_grow_they_end_as_the_finished_ones(data: st.DataObject, three: tuple[Path, Together], tmp_path: Path) -> None:
    # of some milliseconds two are kept, or all; files may end in the middle of a chunk, and one rank may be far behind the others
    whole, expected = three
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    followed = AllRanks(folder, keep=data.draw(st.sampled_from([2_000_000, 10**10])))
    for _ in range(data.draw(st.integers(0, 4))):
        for path in whole.iterdir():
            size, part = path.stat().st_size, folder / path.name
            before = part.stat().st_size if part.exists() else 0
            part.write_bytes(path.read_bytes()[: data.draw(st.integers(before, size))])
        with contextlib.suppress(UllageError):
            followed.look()
        followed.together()
    for path in whole.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    followed.look()
    found = followed.together()
    assert (found.tree.host_totals, found.tree.device_totals) == (expected.tree.host_totals, expected.tree.device_totals)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Together]:
    """Three ranks' steps of 2 ms, one of them slow, and the trees of the whole files."""
    folder = tmp_path_factory.mktemp("three")
    write(training(TrainingPlan(ranks=3, steps=4, layers=3, straggler=1)), folder, per_buffer=40)
    return folder, seen(folder)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_at_a_moment_they_are_the_trees_of_the_time_until_then(share: float, tmp_path: Path) -> None:
    # all ranks have told until one moment, and what was not over then is not there
    scenario = training(TrainingPlan(ranks=3, steps=4, layers=3, straggler=1))
    first, last = min(e.start for e in scenario.events), max(e.end for e in scenario.events)
    moment = first + round(share * (last - first))
    told = replace(scenario, events=[event for event in scenario.events if event.end <= moment])
    for path in write(told, tmp_path, ends=False):
        writer = ChunkWriter(path)
        writer.add(ChunkType.CLOCKS, struct.pack("<QQQ", moment + AHEAD, scenario.epoch + moment, moment + UPTIME))
        writer.close()
    found = seen(tmp_path)
    assert not found.over and found.window is not None and found.window[1] == scenario.epoch + moment
    assert_same(found, read_trace(tmp_path), None)


def test_as_text_and_as_data_they_say_the_same(tmp_path: Path) -> None:
    # of 10 s rank 0 waits 5 s and rank 1 none
    rank(tmp_path, 0).clocks(0).host(waits(0, 5 * SECOND)).clocks(10 * SECOND).killed()
    rank(tmp_path, 1).clocks(0).host(waits(0, SECOND)).clocks(10 * SECOND).killed()
    asked = ask("top", "--run", str(tmp_path)), ask("top", "--once", "--json", "--run", str(tmp_path))
    assert [said.code for said in asked] == [0, 0]
    assert asked[0].out.splitlines() == [
        "host parallel efficiency 70 % over 10.00 s: 2 of 2 ranks, running",
        f"{tmp_path}; talp mode",
        "",
        "                                  last 10 s  since the start",
        "Host  Parallel efficiency              0.70             0.70",
        "        Communication efficiency       0.90             0.90",
        "        Load balance                   0.78             0.78",
        "",
        "rank  host    useful  offload  communication  recorder  kernels     late  lately useful  lately late",
        "0     node-1  50.0 %    0.0 %         50.0 %     0.0 %        –     0 ns         50.0 %         0 ns",
        "1     node-1  90.0 %    0.0 %         10.0 %     0.0 %        –  4.000 s         90.0 %      4.000 s  the others wait for it",
        "",
        "note: 2 of 2 ranks seen, until 00:00:10 UTC",
    ]
    data = json.loads(asked[1].out)
    assert (data["ranks_seen"], data["ranks_expected"], data["complete"], data["over"]) == (2, 2, True, False)
    assert data["whole"]["host"]["host_parallel_efficiency"] == data["recent"]["host"]["host_parallel_efficiency"] == 0.7
    assert [(one["useful"], one["communication"], one["late_ns"], one["lately_late_ns"]) for one in data["ranks"]] == [
        (0.5, 0.5, 0, 0),
        (0.9, 0.1, 4 * SECOND, 4 * SECOND),
    ]


def test_where_devices_communicate_the_rank_whose_kernels_take_longest_is_late(three: tuple[Path, Together]) -> None:
    late = lateness(three[1])
    assert three[1].tree.mode == "ai" and max(late) == late[1] > 0


def test_of_many_ranks_a_screen_shows_the_latest(tmp_path: Path) -> None:
    for number in range(30):
        rank(tmp_path, number, 30).clocks(0).host(waits(0, number)).clocks(100).killed()
    followed = AllRanks(tmp_path)
    followed.look()
    lines = text(view(watched_run(followed), 3), width=120, fill=True).splitlines()
    assert "… 27 more; less late" in lines
    assert [line.split()[0] for line in lines if " node-1 " in line] == ["0", "1", "2"]


def test_a_terminal_is_kept_up_to_date_until_the_run_is_over(tmp_path: Path) -> None:
    made = [rank(tmp_path, number).clocks(0).host(waits(0, 5)).clocks(50) for number in range(2)]
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "ullage", "top", "--every", "0.1s", "--run", str(tmp_path)]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.PIPE, env=os.environ | {"TERM": "xterm", "COLUMNS": "120"}) as top:
        os.close(theirs)
        shown = os.read(ours, 4096)
        while b"running" not in shown:
            shown += os.read(ours, 4096)
        for one in made:
            one.clocks(100).end()
        with contextlib.suppress(OSError):  # the other end is closed
            while more := os.read(ours, 4096):
                shown += more
        assert top.wait(timeout=60) == 0
    os.close(ours)
    assert b"2 of 2 ranks, over" in shown


@pytest.mark.parametrize("options", [("--source", "x"), ("--gpu", "0"), ("--sort", "ofu")])
def test_what_is_about_gpus_does_not_go_with_a_run(options: tuple[str, str], tmp_path: Path) -> None:
    said = ask("top", "--once", "--run", str(tmp_path), *options)
    assert said.code == 1 and "--run shows the ranks of a run, not GPUs" in said.err


def test_real_ranks_are_seen_while_they_run_and_give_the_trees_of_the_finished_run(tmp_path: Path) -> None:
    # rank r computes for (r + 1) × 20 ms a step, then both meet: of three parts of time two are of rank 1
    kept = tmp_path / "kept"
    ours = [*ULLAGE, "run", "--no-counters", "--quiet", "--flush", "100", "--keep", kept, "--", ranks_program(), "steps", "50"]
    job = subprocess.Popen([*mpirun(2), *map(str, ours)], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.DEVNULL)
    followed, found = AllRanks(kept), None
    try:
        while job.poll() is None and (found is None or found.tree.elapsed < SECOND):
            time.sleep(0.05)
            with contextlib.suppress(UllageError):  # the folder is not there yet
                followed.look()
                found = followed.together()
        assert job.poll() is None and found is not None and not found.over
        assert (found.seen, found.expected) == (2, 2)
        assert found.tree["host_load_balance"] == pytest.approx(0.75, abs=0.1)
        assert found.tree["host_communication_efficiency"] == pytest.approx(1, abs=0.1)
        assert lateness(found)[1] > lateness(found)[0] == 0
    finally:
        assert job.wait(timeout=60) == 0
    followed.look()
    assert followed.together().over
    assert_same(followed.together(), read_trace(kept), None)


STEPS = """
import sys, time, ullage, ullage.live
ullage.live.start(sys.argv[1], cuda=False)
with ullage.region("step") as step:
    print(flush=True)
    sys.stdin.readline()
    time.sleep(0.05)
tree, whole = step.tree(all_ranks=True), ullage.live.tree(all_ranks=True)
for found in (tree, whole):
    print(found.host_totals and found.host_totals.processes, found.notes[0], sep="|", end="|")
print(flush=True)
sys.stdin.readline()
"""


def test_a_program_asks_for_the_trees_of_all_ranks_while_they_run(tmp_path: Path) -> None:
    ranks = []
    for number in ("0", "1"):
        given = os.environ | {"RANK": number, "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
        words = [sys.executable, "-c", STEPS, str(tmp_path)]
        ranks.append(subprocess.Popen(words, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        for one in ranks:
            assert one.stdout is not None and one.stdout.readline() == "\n"
        said = []
        for one in ranks:
            assert one.stdin is not None and one.stdout is not None
            one.stdin.write("\n")
            one.stdin.flush()
            said.append(one.stdout.readline().strip().split("|"))
        # the first to ask knows the other until that one last wrote, maybe before the region; then that one knows all of both
        for told in (said[1][:2], said[1][2:]):
            assert told[0] == "2" and told[1].startswith("2 of 3 ranks seen, until ")
    finally:
        for one in ranks:
            one.communicate("\n", timeout=60)
    assert [one.returncode for one in ranks] == [0, 0]


def test_where_nothing_records_a_note_says_so() -> None:
    assert "nothing records this program" in live.tree(all_ranks=True).notes[0]
