"""From files to one run: which files are read, whose they are, by which clock, in which process, and how many at a time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.seeds import some
from tests.traces.kineto_events import BASE, call, kernel
from tests.traces.nsys_runs import SHARED
from tests.traces.trace_command import EVENTS, profile, refused
from ullage import profiles, read_trace
from ullage.errors import UllageError
from ullage.named import found, ranks
from ullage.profiles import ProfileRequest
from ullage.profiles import profile as read
from ullage.simulate.traces import kineto, nsys, talp
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.sums.lanes.gather import Capture, gather
from ullage.sums.lanes.window import TraceWindow


def notes(where: Path | str, **asked: object) -> str:
    return "\n".join(read(str(where), ProfileRequest(**asked)).problems.lines())  # type: ignore[arg-type]


# -- which files --------------------------------------------------------------------------------------------------------


def test_a_file_with_two_names_is_read_once(tmp_path: Path) -> None:
    path = profile(tmp_path, "a.json")
    (tmp_path / "latest.json").symlink_to("a.json")
    os.link(path, tmp_path / "same.json")
    assert found([str(tmp_path), str(path), f"{tmp_path}/*.json"]) == [path]


def test_links_in_a_circle_and_links_to_nothing_are_passed_over(tmp_path: Path) -> None:
    path = profile(tmp_path, "a.json")
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    (tmp_path / "gone.json").symlink_to("nowhere")
    assert found([str(tmp_path)]) == [path]


def test_a_pipe_is_refused_alone_and_passed_over_in_a_folder(tmp_path: Path) -> None:
    path = profile(tmp_path, "a.json")
    os.mkfifo(tmp_path / "pipe.json")
    assert found([str(tmp_path)]) == [path]
    assert "is a pipe or a device, not a file" in refused(tmp_path / "pipe.json")


@pytest.mark.parametrize("place", ["nowhere.json", "nowhere/*.json", "~nobody-of-that-name/x.json", ""])
def test_a_place_that_names_nothing_is_one_clear_error(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UllageError, match="there is no file"):
        found([place])


def test_a_folder_with_the_name_of_a_file_is_a_folder(tmp_path: Path) -> None:
    profile(tmp_path, "trace.json/inside.json")
    assert [path.name for path in found([str(tmp_path / "trace.json")])] == ["inside.json"]


def test_hidden_files_and_folders_are_not_looked_at(tmp_path: Path) -> None:
    profile(tmp_path, ".cache/a.json")
    profile(tmp_path, ".b.json")
    with pytest.raises(UllageError, match="there is no file in"):
        found([str(tmp_path)])


def test_other_files_in_a_folder_are_counted_and_cost_the_run_nothing(tmp_path: Path) -> None:
    profile(tmp_path, "a.json", rank=0)
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / "config.json").write_text('{"a": 1}')
    (tmp_path / "report.nsys-rep").write_bytes(b"\0\1")
    run = read(str(tmp_path))
    assert run.problems.dropped == {"files that are not traces": 3} and not run.partial


def test_a_trace_that_can_not_be_used_makes_the_run_partial_and_strict_refuses_it(tmp_path: Path) -> None:
    profile(tmp_path, "a.json", rank=0)
    profile(tmp_path, "b.json", rank=1, events=())
    run = read(str(tmp_path))
    assert run.partial and run.problems.dropped == {"traces that can't be used": 1}
    assert "holds nothing that lasts" in refused(tmp_path, "--strict")


def test_traces_of_different_tools_are_named_with_their_tools(tmp_path: Path) -> None:
    profile(tmp_path, "a.json")
    nsys.write(SHARED, tmp_path / "b.sqlite", generation="2026")
    said = refused(tmp_path)
    assert "a.json (kineto)" in said and "b.sqlite (nsys)" in said


def test_a_file_that_vanishes_between_looking_and_reading_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = profile(tmp_path)
    really = profiles.read_one
    monkeypatch.setattr(profiles, "read_one", lambda task: (path.unlink(), really(task))[1])
    assert "No such file" in refused(path)


def test_paths_of_any_length_are_told_apart(tmp_path: Path) -> None:
    # both begin with the same 240 characters
    deep = tmp_path / "/".join(["d" * 60] * 4)
    for rank in (0, 1):
        profile(deep, f"rank{rank}.json", rank=rank)
    run = read(str(deep)).run
    assert run is not None and len({p.key for p in run.processes}) == len({d.key for d in run.devices}) == 2


# -- whose they are -----------------------------------------------------------------------------------------------------


def test_two_files_of_one_rank_are_refused_and_a_rank_on_the_command_line_settles_it(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        profile(tmp_path, name, rank=0)
    said = refused(tmp_path)
    assert "rank 0 is in both" in said and "--rank FILE=" in said
    run = read(str(tmp_path), ProfileRequest(ranks={"b.json": 1})).run
    assert run is not None and [p.label for p in run.processes] == ["rank 0", "rank 1"]


def test_a_rank_may_name_a_file_by_the_end_of_its_path() -> None:
    files = [Path("run/n0/trace.json"), Path("run/n1/trace.json"), Path("run/n1/other.json")]
    assert ranks(files, {"n1/trace.json": 7, "other.json": 3}) == {files[1]: 7, files[2]: 3}
    assert ranks(files[:1], {"": 2}) == {files[0]: 2}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"none.json": 1}, "'none.json' is the name of no file"),
        ({"trace.json": 1}, "'trace.json' is the name of 2 files"),
        ({"": 1}, "rank 1 is for one file, and there are 2"),
        ({"a/trace.json": 2**31}, "rank must be a whole number from 0 to 2,147,483,647, not 2147483648"),
    ],
)
def test_a_rank_for_no_file_or_for_several_is_one_clear_error(given: dict[str, int], says: str) -> None:
    with pytest.raises(UllageError, match=says):
        ranks([Path("a/trace.json"), Path("b/trace.json")], given)


def test_one_rank_can_not_name_a_file_of_several(tmp_path: Path) -> None:
    path = nsys.write(SHARED, tmp_path / "a.sqlite", generation="2026")
    run = read(str(path)).run
    assert run is not None and {p.rank for p in run.processes} >= {0, 1}
    assert "holds 2 ranks" in refused(path, "--rank", "5")


# -- by which clock -----------------------------------------------------------------------------------------------------


def test_files_without_a_common_clock_are_said_to_have_none(tmp_path: Path) -> None:
    profile(tmp_path, "a.json", rank=0, base=None)
    profile(tmp_path, "b.json", rank=1, base=None)
    assert "have no common clock" in notes(tmp_path)
    profile(tmp_path, "a.json", rank=0, base=BASE)
    assert "b.json has no common clock with the other files" in notes(tmp_path)
    profile(tmp_path, "b.json", rank=1, base=BASE)
    assert "clock" not in notes(tmp_path)


def test_files_recorded_at_different_times_are_said_to_be(tmp_path: Path) -> None:
    profile(tmp_path, "a.json", rank=0)
    profile(tmp_path, "b.json", rank=1, base=BASE + 1_000 * 10**9)
    said = notes(tmp_path)  # the first ends 200 us after its base
    assert "recorded at different times (1,000 s between them)" in said


def test_a_rank_recorded_for_less_time_than_another_is_said_to_be(tmp_path: Path) -> None:
    profile(tmp_path, "a.json", rank=0)
    profile(tmp_path, "b.json", rank=1, events=(call(0, 10), kernel(20, 5)))
    said = read_trace(str(tmp_path)).report().notes
    assert any(
        "rank 1 was recorded for 2.5e-05 s, rank 0 for 0.0002 s: the efficiencies and the tables are of the time" in note for note in said
    )


# -- in which process, and how many at a time ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eight")
    kineto.write(training(TrainingPlan(ranks=8, steps=2, straggler=3)), folder)
    return folder


@pytest.mark.parametrize("workers", some([2, 8], 1))
def test_eight_ranks_read_side_by_side_are_those_read_one_by_one(eight: Path, workers: int) -> None:
    from ullage.render.trace_json import record
    from ullage.reports.trace.trace import trace
    from ullage.views.json_text import json_text

    one, several = (json_text(record(trace(read(str(eight), ProfileRequest(workers=w)), "first-last"))) for w in (1, workers))
    assert one == several


def test_no_two_ranks_events_are_held_at_once(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import weakref

    live: weakref.WeakSet[object] = weakref.WeakSet()
    most = [0]

    def counted(*given: object) -> Capture:
        capture = gather(*given)  # type: ignore[arg-type]
        live.add(capture.device)
        most.append(len(live))
        return capture

    monkeypatch.setattr(profiles, "gather", counted)
    assert len(read(str(eight), ProfileRequest(workers=1)).recordings) == 8
    assert most == [0] + [1] * 16 and not live  # each file is read again for tables of the time that all ranks have in common
    most[:] = [0]
    assert len(read(str(eight), ProfileRequest(workers=1, tables="recorded")).recordings) == 8
    assert most == [0] + [1] * 8 and not live


def test_processes_that_share_a_device_share_it_in_one_file_and_in_two(tmp_path: Path) -> None:
    # process 0 runs its kernel from 12 to 412, process 1 from 12 to 612, each at its own times in the run from 0 to 1000 ns
    path = nsys.write(SHARED, tmp_path / "a.sqlite", generation="2026")
    together = read(str(path)).run
    halves = tmp_path / "halves"
    for rank in (0, 1):
        part = replace(SHARED, events=tuple(e for e in SHARED.events if e.process == rank), ranks={rank: rank})
        halves.mkdir(exist_ok=True)
        nsys.write(part, halves / f"rank{rank}.sqlite", generation="2026")
    apart = read(str(halves)).run
    assert together is not None and apart is not None
    assert [len(run.devices) for run in (together, apart)] == [1, 1]
    assert together.devices[0].kernel.total == apart.devices[0].kernel.total == 600
    assert len(together.devices[0].owners) == len(apart.devices[0].owners) == 2


def test_a_window_can_not_be_cut_out_of_sums(tmp_path: Path) -> None:
    path = talp.write(SHARED, tmp_path / "talp.json")
    assert read(str(path)).regions
    with pytest.raises(UllageError, match="no window can be cut out"):
        read(str(path), ProfileRequest(window=TraceWindow("steps")))


def test_what_was_left_out_is_told_with_the_error_that_it_may_explain(tmp_path: Path) -> None:
    far = tuple(event | {"ts": event["ts"] + 9.2e15} for event in EVENTS[:2])
    assert "left out" in refused(profile(tmp_path, events=far))
