"""Whatever a command writes, it replaces only what is its own, and nothing before all of the new is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import ask
from ullage.errors import UllageError
from ullage.output_folder import MARK, clear_interrupted, output_folder

MAKER = "ullage demo"


def fill(folder: Path, *names: str, content: str = "new", maker: str = MAKER, check: tuple[str, ...] = ()) -> None:
    with output_folder(folder, maker, check) as stage:
        for name in names:
            path = stage / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def content(folder: Path) -> dict[str, str]:
    """What a folder holds, hidden things too; but not the mark."""
    found = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    return {name: text for name, text in found.items() if name != MARK}


def test_a_new_folder_holds_what_was_written_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path / "a" / "b", "report.html", "store/part")
    assert content(tmp_path / "a" / "b") == {"report.html": "new", "store/part": "new"}


def test_what_the_command_wrote_before_is_replaced_and_what_it_no_longer_writes_is_gone(tmp_path: Path) -> None:
    fill(tmp_path, "report.html", "store/part", "rank7.json", content="old")
    fill(tmp_path, "report.html", "store/other")
    assert content(tmp_path) == {"report.html": "new", "store/other": "new"}


def test_everything_else_in_the_folder_stays(tmp_path: Path) -> None:
    fill(tmp_path, "report.html", content="old")
    (tmp_path / "notes.txt").write_text("mine")
    fill(tmp_path, "report.html")
    assert content(tmp_path) == {"report.html": "new", "notes.txt": "mine"}


@pytest.mark.parametrize("check", [(), ("store",)], ids=["found at the end", "said before"])
def test_what_somebody_else_wrote_is_refused_and_stays(tmp_path: Path, check: tuple[str, ...]) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "part").write_text("mine")
    with pytest.raises(UllageError, match="is in the way, and `ullage demo` did not write it"):
        fill(tmp_path, "store/part", "report.html", check=check)
    assert content(tmp_path) == {"store/part": "mine"}


def test_names_that_are_said_before_are_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("mine")
    with pytest.raises(UllageError), output_folder(tmp_path, MAKER, ("store",)):
        pytest.fail("the work was begun")


@pytest.mark.parametrize("change", ["content", "another file", "a file less"])
def test_what_was_changed_since_is_somebodys_own(tmp_path: Path, change: str) -> None:
    fill(tmp_path, "store/part", "store/other", content="old")
    if change == "content":
        (tmp_path / "store" / "part").write_text("much better")
    elif change == "another file":
        (tmp_path / "store" / "more").write_text("mine")
    else:
        (tmp_path / "store" / "other").unlink()
    before = content(tmp_path)
    with pytest.raises(UllageError, match="store was changed since `ullage demo` wrote it"):
        fill(tmp_path, "store/part")
    assert content(tmp_path) == before


def test_a_changed_entry_that_is_not_written_again_stays(tmp_path: Path) -> None:
    fill(tmp_path, "rank0.json", "rank1.json", content="old")
    (tmp_path / "rank1.json").write_text("changed by hand")
    fill(tmp_path, "rank0.json")
    assert content(tmp_path) == {"rank0.json": "new", "rank1.json": "changed by hand"}


def test_what_another_command_wrote_is_not_this_ones(tmp_path: Path) -> None:
    fill(tmp_path, "config.json", content="old", maker="ullage simulate job")
    with pytest.raises(UllageError, match=r"config\.json is in the way"):
        fill(tmp_path, "config.json")
    assert content(tmp_path) == {"config.json": "old"}


@pytest.mark.parametrize("mark", ["", "{", "[]", '{"by": "ullage demo"}', '{"by": "ullage demo", "entries": ["store"]}', "[" * 100_000])
def test_a_mark_that_says_nothing_allows_nothing(tmp_path: Path, mark: str) -> None:
    fill(tmp_path, "store/part", content="old")
    (tmp_path / MARK).write_text(mark)
    with pytest.raises(UllageError, match="is in the way"):
        fill(tmp_path, "store/part")
    assert content(tmp_path) == {"store/part": "old"}


def test_a_mark_can_not_name_what_lies_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    fill(tmp_path / "out", "a")
    said = json.loads((tmp_path / "out" / MARK).read_text())
    from ullage.output_folder import fingerprint

    said["entries"]["../mine.txt"] = fingerprint(tmp_path / "mine.txt")
    (tmp_path / "out" / MARK).write_text(json.dumps(said))
    fill(tmp_path / "out", "a")
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_failure_midway_leaves_everything_as_it_was(tmp_path: Path) -> None:
    fill(tmp_path / "out", "report.html", content="old")
    with pytest.raises(RuntimeError), output_folder(tmp_path / "out", MAKER) as stage:
        (stage / "report.html").write_text("half")
        raise RuntimeError("the disk is full")
    assert content(tmp_path / "out") == {"report.html": "old"}
    with pytest.raises(RuntimeError), output_folder(tmp_path / "new", MAKER) as stage:
        (stage / "report.html").write_text("half")
        raise RuntimeError("the disk is full")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("failing", ["report.html", "store", MARK])
def test_a_rename_that_fails_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    fill(tmp_path, "report.html", "store/part", content="old")
    for name in ("rename", "replace"):
        really = getattr(Path, name)

        def refused(self: Path, target: Path, really: object = really) -> Path:
            if Path(target) == tmp_path / failing and self.parent.name.startswith(".ullage-"):
                raise PermissionError(13, "Permission denied")
            return really(self, target)  # type: ignore[operator,no-any-return]

        monkeypatch.setattr(Path, name, refused)
    with pytest.raises(PermissionError):
        fill(tmp_path, "report.html", "store/part")
    monkeypatch.undo()
    assert content(tmp_path) == {"report.html": "old", "store/part": "old"}


def killed(folder: Path, names: tuple[str, ...], after: int | None = None) -> None:
    """Leave what a run leaves that is killed before it puts anything in place (None), or after so many renames."""
    code = f"""
import os
from pathlib import Path
from ullage.output_folder import output_folder
rename, left = Path.rename, {after}
def renamed(self, target):
    global left
    if left == 0:
        os._exit(9)
    left -= 1
    return rename(self, target)
Path.rename = Path.replace = renamed
with output_folder(Path({str(folder)!r}), {MAKER!r}) as stage:
    for name in {names!r}:
        (stage / name).parent.mkdir(exist_ok=True)
        (stage / name).write_text("from a run that was killed")
    if left is None:
        os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9


@pytest.mark.parametrize("after", [None, 0, 1, 2, 3, 4], ids=str)
def test_a_run_that_was_killed_is_as_if_it_had_never_begun(tmp_path: Path, after: int | None) -> None:
    fill(tmp_path, "report.html", "store/part", content="old")
    (tmp_path / "notes.txt").write_text("mine")
    before = content(tmp_path)
    killed(tmp_path, ("report.html", "store/part"), after)
    assert content(tmp_path) != before
    assert clear_interrupted(tmp_path) == 1 and content(tmp_path) == before
    assert clear_interrupted(tmp_path) == 0
    fill(tmp_path, "report.html", "store/part")
    assert content(tmp_path) == {"report.html": "new", "store/part": "new", "notes.txt": "mine"}


def test_a_run_that_was_killed_when_all_was_in_place_has_ended_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a", "b", content="old")
    with monkeypatch.context() as patch:
        patch.setattr("ullage.output_folder.shutil.rmtree", lambda *_, **__: None)
        fill(tmp_path, "a")  # what it no longer writes lies in what it would have taken away
    assert clear_interrupted(tmp_path) == 1 and content(tmp_path) == {"a": "new"}
    fill(tmp_path, "a", "b")
    assert content(tmp_path) == {"a": "new", "b": "new"}


def test_what_somebody_changed_after_a_run_was_killed_stays(tmp_path: Path) -> None:
    fill(tmp_path, "report.html", content="old")
    killed(tmp_path, ("report.html",), 2)
    (tmp_path / "report.html").write_text("mine by now")
    assert clear_interrupted(tmp_path) == 1 and content(tmp_path) == {"report.html": "mine by now"}


def test_a_run_that_goes_on_is_not_taken_for_one_that_was_killed(tmp_path: Path) -> None:
    with output_folder(tmp_path, MAKER) as stage:
        (stage / "report.html").write_text("new")
        assert clear_interrupted(tmp_path) == 0
    assert content(tmp_path) == {"report.html": "new"}
    other = tmp_path / ".ullage-other"
    other.mkdir()
    assert clear_interrupted(tmp_path) == 0 and other.exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UllageError, match="is a file"):
        fill(tmp_path / "out", "a")


# --- the commands that fill a folder ---------------------------------------------------------------------------------------------

DEMO = ("demo", "--gpus", "8", "--hours", "0.5")


def a_store(folder: Path) -> dict[str, int]:
    """A store that is not the demo's."""
    from ullage.store.store import Store
    from ullage.tables import samples

    Store.open(folder, create=True).append(samples({"time": [1_786_320_000_000], "gpu": ["mine"], "power": [300.0]}))
    return sizes(folder)


def sizes(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def test_the_demo_refuses_a_store_that_is_not_its_own(tmp_path: Path) -> None:
    before = a_store(tmp_path / "store")
    said = ask(*DEMO, "--out", tmp_path)
    assert (said.code, said.out) == (1, "") and "store is in the way, and `ullage demo` did not write it" in said.err
    assert sizes(tmp_path / "store") == before


@pytest.mark.parametrize("words", [("--gpus", "0"), ("--hours", "nan"), ("--hours", "1e9"), ("--seed", "-1")])
def test_a_demo_whose_arguments_are_refused_leaves_the_last_one_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    out = tmp_path / "demo"
    assert ask(*DEMO, "--out", out).code == 0
    before = sizes(out)
    said = ask("demo", *words, "--out", out)
    assert (said.code, said.out) == (1, "")
    assert sizes(out) == before
    assert ask("demo", *words, "--out", tmp_path / "other").code == 1 and not (tmp_path / "other").exists()


def test_a_demo_replaces_the_last_one_and_what_it_prints_is_where_things_are(tmp_path: Path) -> None:
    for gpus in ("16", "8"):
        said = ask("demo", "--gpus", gpus, "--hours", "0.5", "--out", tmp_path / "demo")
        assert said.code == 0
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {"store", "report.html", "answers.json", "configs", MARK}
    again = ask("fleet", tmp_path / "demo" / "store", "--json").json
    assert again["gpus"] == 8
    assert f"ullage fleet {tmp_path / 'demo' / 'store'} --by user" in said.out
    assert str(tmp_path / "demo" / "store") in (tmp_path / "demo" / "report.html").read_text()
    assert ".ullage-" not in said.out + (tmp_path / "demo" / "report.html").read_text()


def test_samples_that_were_added_to_the_demos_store_are_not_lost(tmp_path: Path) -> None:
    assert ask(*DEMO, "--out", tmp_path).code == 0
    (tmp_path / "mine.csv").write_text("time,gpu,power\n1786320000,mine,300\n")
    ask("fleet", tmp_path / "mine.csv", "--store", tmp_path / "store", "--gpu", "H100")
    before = sizes(tmp_path / "store")
    said = ask(*DEMO, "--out", tmp_path)
    assert said.code == 1 and "store was changed since `ullage demo` wrote it" in said.err
    assert sizes(tmp_path / "store") == before


def test_the_demos_default_folder_is_made_only_for_a_demo_that_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ask("demo", "--gpus", "0").code == 1
    assert list(tmp_path.iterdir()) == []
    assert ask(*DEMO).code == 0 and (tmp_path / "ullage-demo" / "report.html").exists()


SIMULATE = ("simulate", "--gpus", "8", "--hours", "0.1", "--faults", "none")


def test_force_replaces_an_earlier_simulation_and_nothing_else(tmp_path: Path) -> None:
    assert ask(*SIMULATE, "--out", tmp_path).code == 0
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty" in ask(*SIMULATE, "--out", tmp_path).err
    assert ask(*SIMULATE, "--out", tmp_path, "--force", "--format", "csv").code == 0
    assert [path.name for path in (tmp_path / "samples").iterdir()] == ["fleet.csv"] and (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("name", ["samples/mine.parquet", "configs/mine.json", "jobs.csv", "answers.json"])
def test_force_does_not_reach_what_no_simulation_wrote(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    said = ask(*SIMULATE, "--out", tmp_path, "--force")
    assert said.code == 1 and "is in the way, and `ullage simulate` did not write it" in said.err
    assert path.read_text() == "mine" and sizes(tmp_path) == {name: 4}


def test_a_simulated_job_does_not_take_the_place_of_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("mine")
    said = ask("simulate", "job", "--out", tmp_path)
    assert said.code == 1 and "config.json is in the way" in said.err
    assert sizes(tmp_path) == {"config.json": 4}
    assert (
        ask("simulate", "job", "--out", tmp_path / "job").code == 0 == ask("simulate", "job", "--seed", "1", "--out", tmp_path / "job").code
    )
    assert ask("simulate", "job", "--ranks", "0", "--out", tmp_path / "none").code == 1 and not (tmp_path / "none").exists()


@pytest.mark.parametrize("form", ["kineto", "nsys", "talp", "recording"])
def test_simulated_traces_replace_their_own_and_no_rank_of_the_last_run_is_left(tmp_path: Path, form: str) -> None:
    words = ("simulate", "trace", "--format", form, "--out", tmp_path)
    assert ask(*words, "--ranks", "4").code == 0
    made = ask(*words, "--ranks", "2", "--json")
    listed = {Path(one["file"]).name for one in made.json["files"]}
    assert made.code == 0 and listed == {path.name for path in tmp_path.iterdir()} - {MARK}


def test_a_simulated_trace_does_not_take_the_place_of_a_real_one(tmp_path: Path) -> None:
    (tmp_path / "training_rank0.json").write_text("mine")
    said = ask("simulate", "trace", "--out", tmp_path)
    assert said.code == 1 and "training_rank0.json is in the way" in said.err
    assert sizes(tmp_path) == {"training_rank0.json": 4}
    assert ask("simulate", "trace", "--run", "99", "--out", tmp_path / "none").code == 1 and not (tmp_path / "none").exists()


# --- the commands that write a file --------------------------------------------------------------------------------------------------


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """One of everything that commands read."""
    from tests.benches.bench_results import of_bench
    from tests.traces.trace_command import profile
    from ullage.reports.bench.suite import write_results

    profile(tmp_path, "trace.json")
    profile(tmp_path / "profiles", "rank0.json", rank=0)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 8}')
    (tmp_path / "gemms.json").write_text("[]")
    write_results([of_bench("memory-latency"), of_bench("wgmma")], tmp_path / "results.json")
    for name in ("samples.parquet", "jobs.txt", "log.txt", "counters.json", "a.txt"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "part.parquet").write_text("mine")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["fleet", "samples.parquet", "--by", "sample", "--out", "samples.parquet"],
        ["fleet", "a", "--jobs", "jobs.txt", "--out", "jobs.txt"],
        ["fleet", "a", "--reported", "log.txt=7", "--out", "log.txt"],
        ["fleet", "store", "--out", "store/part.parquet"],
        ["trace", "trace.json", "--out", "trace.json"],
        ["trace", "profiles", "--out", "profiles/rank0.json"],
        ["trace", "prof*", "--out", "./profiles/../trace.json", "trace.json"],
        ["trace", "compare", "a=trace.json", "b", "--out", "trace.json"],
        ["trace", "scaling", "a", "b=trace.json", "--out", "trace.json"],
        ["trace", "gemms", "trace.json", "--out", "trace.json"],
        ["waterfall", "--config", "config.json", "--out", "config.json"],
        ["waterfall", "--gemms", "gemms.json", "--ofu", "34", "--out", "gemms.json"],
        ["waterfall", "config.json", "--out", "config.json"],
        ["flops", "config.json", "--seq", "8", "--out", "config.json"],
        ["audit", "mfu", "--config", "config.json", "--reported", "30", "--ofu", "30", "--out", "config.json"],
        ["bench", "--from", "results.json", "--out", "results.json"],
        ["bench", "drift", "--baseline", "results.json", "--out", "results.json"],
        ["sass", "a.txt", "--out", "a.txt"],
        ["cupti", "stalls", "counters.json", "--out", "counters.json"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_answer_takes_the_place_of_what_is_read(inputs: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(inputs)
    before = {path: path.read_bytes() for path in inputs.rglob("*") if path.is_file()}
    said = ask(*words)
    assert (said.code, said.out) == (1, ""), said
    assert "is read, and the answer would take its place" in said.err
    assert {path: path.read_bytes() for path in inputs.rglob("*") if path.is_file()} == before


def test_a_page_beside_the_traces_that_it_is_about_may_be_written_again(inputs: Path) -> None:
    for _ in range(2):
        assert ask("trace", inputs / "profiles", "--out", inputs / "profiles" / "report.html").code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fleet", "none", "--out", "r.docx"], "cannot write 'r.docx'"),
        (["flops", "none", "--out", "r.docx"], "cannot write 'r.docx'"),
        (["audit", "mfu", "--config", "none", "--reported", "30", "--ofu", "40", "--out", "r.docx"], "cannot write 'r.docx'"),
        (["fleet", "none", "--out", "none/r.html"], "there is no folder none"),
        (["flops", "none", "--out", "none/r.txt"], "there is no folder none"),
        (["fleet", "none", "--out", "folder.html"], "folder.html is a folder"),
        (["trace", "none", "--out", "/dev/null"], "cannot write"),
        (["run", "--out", "r.json", "--talp", "r.json", "--", "true"], "--out and --talp are one file"),
        (["run", "--out", "r.json", "--json", "./r.json", "--", "true"], "--json and --out are one file"),
    ],
)
def test_where_an_answer_can_not_go_is_told_before_anything_is_read(
    tmp_path: Path, words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    said = ask(*words)
    assert said.code in (1, 2) and said.out == "" and told in said.err, said
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


def test_a_form_may_be_written_in_capitals(inputs: Path) -> None:
    assert ask("trace", inputs / "trace.json", "--out", inputs / "R.HTML").code == 0
    assert (inputs / "R.HTML").read_text().startswith("<!doctype html>")


def test_a_span_to_keep_is_never_rounded_down(tmp_path: Path) -> None:
    from ullage.store.store import Store
    from ullage.tables import samples

    hour = 3_600_000
    times = [1_786_320_000_000 + hour * n for n in range(60)]
    store = Store.open(tmp_path / "store", create=True)
    store.append(samples({"time": times, "gpu": ["a"] * 60, "power": [300.0] * 60}))
    # 30 hours before the newest, hour 59, is hour 29 of the second day; one day before it is hour 35
    assert ask("store", "retain", tmp_path / "store", "--keep", "30h").code == 0
    assert store.window() == (times[0], times[-1])  # the first day reaches to hour 23, and two whole days are kept: all three days
    assert ask("store", "retain", tmp_path / "store", "--keep", "1d").code == 0
    assert store.window() == (times[24], times[-1])


def test_ceilings_that_can_not_be_read_are_put_aside_and_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.benches.bench_results import of_bench
    from ullage.gpus import measured
    from ullage.reports.bench.suite import write_results

    monkeypatch.setenv("ULLAGE_CEILINGS", str(tmp_path / "ceilings"))
    write_results([of_bench("wgmma"), of_bench("memory-bandwidth")], tmp_path / "r.json")
    assert ask("bench", "--from", tmp_path / "r.json", "--save").code == 0
    [kept] = (tmp_path / "ceilings").iterdir()
    kept.write_text('{"format": 99, "flops": {"fp6": 1e15}}')  # by a newer Ullage
    assert ask("bench", "--from", tmp_path / "r.json", "--save").code == 0
    aside = {path.name: path.read_text() for path in (tmp_path / "ceilings").iterdir() if path != kept}
    assert list(aside.values()) == ['{"format": 99, "flops": {"fp6": 1e15}}']
    assert json.loads(kept.read_text())["format"] == measured.FORMAT


def test_where_ceilings_can_not_be_kept_is_told_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ULLAGE_CEILINGS", str(tmp_path / "file" / "ceilings"))
    monkeypatch.setattr("ullage.reports.bench.suite.measured_suite", lambda *_, **__: pytest.fail("it was measured"))
    said = ask("bench", "wgmma", "--save")
    assert said.code == 1 and "can't be written" in said.err


def test_a_recording_that_is_not_closed_is_repaired_without_being_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.benches import gemm_ofu_record

    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"whole": 1}\n{"hal')
    monkeypatch.setattr(Path, "write_bytes", lambda *_: pytest.fail("a file that is written anew is empty first"))
    gemm_ofu_record._repair(path)
    assert path.read_bytes() == b'{"whole": 1}\n'


def test_old_results_stay_until_a_suite_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.benches.bench_results import of_bench
    from ullage.benches.running import apart, driver
    from ullage.reports.bench.suite import read_results, write_results

    path, seen = tmp_path / "x.json", []
    write_results([of_bench("mma"), of_bench("memory-bandwidth")], path)

    def suite(names: object, **more: object):  # type: ignore[no-untyped-def]
        yield of_bench("memory-latency")
        seen.append(([one.bench for one in read_results(path)], [one.bench for one in read_results(tmp_path / "x.json.part")]))
        yield of_bench("wgmma")

    monkeypatch.setattr(driver, "bindings", lambda: None)
    monkeypatch.setattr(apart, "suite_apart", suite)
    assert ask("bench", "memory-latency", "wgmma", "--out", path).code == 0
    assert seen == [(["mma", "memory-bandwidth"], ["memory-latency"])]
    assert [one.bench for one in read_results(path)] == ["memory-latency", "wgmma"]
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]


def test_a_written_table_is_whole_or_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "old.parquet").write_text("old")
    said = ask("fleet", tmp_path / "none", "--by", "sample", "--out", tmp_path / "old.parquet")
    assert said.code == 1 and (tmp_path / "old.parquet").read_text() == "old"
