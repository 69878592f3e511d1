"""Regions in user code: what they record, from which thread, around which sort of function; and nothing at all where nothing records."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recorder.recordings import rows
from ullage import live
from ullage.cupti.recorder import Recorder
from ullage.errors import UllageError
from ullage.live import online, session
from ullage.live.following import Following
from ullage.live.regions import region
from ullage.live.trees import ProcessTree


@pytest.fixture(scope="module")
def library() -> Path:
    """The recorder built."""
    from ullage.cupti.native.build import recorder

    try:
        return recorder()
    except UllageError as error:
        pytest.skip(error.problem)


@pytest.fixture
def recorded(library: Path, tmp_path: Path) -> Iterator[Path]:
    """Recording of regions alone; gives the file."""
    path = session.start(tmp_path, cuda=False)
    assert path is not None
    yield path
    session.detach()


def regions(path: Path) -> list[dict[str, Any]]:
    session.detach()
    found = rows(path)[0]
    assert {row["kind"] for row in found} <= {"region"}
    return sorted(found, key=lambda row: (row["start"], -row["end"]))


def names(path: Path) -> list[str]:
    return [row["name"] for row in regions(path)]


def test_where_nothing_records_a_region_does_nothing() -> None:
    assert session.recorder is None
    with region("forward") as found:
        pass
    assert session.path() is None
    assert session.stop() is None
    assert session.detach() is None
    assert found.tree() == ProcessTree("forward", notes=(session.NOBODY,))


def test_the_package_gives_out_what_a_program_calls() -> None:
    assert {name: getattr(live, name).__name__ for name in live.__all__} == {name: name for name in live.__all__}
    with pytest.raises(AttributeError, match="has no attribute 'begin'"):
        _ = live.begin


def test_regions_nest_and_repeat(recorded: Path) -> None:
    step = region("step")
    for _ in range(2):
        with step, region("forward"):
            pass
    with step, step:  # entered again while it is open
        pass
    assert Counter(names(recorded)) == {"step": 4, "forward": 2}
    outer, inner, *_ = regions(recorded)
    assert outer["start"] <= inner["start"] <= inner["end"] <= outer["end"]


def test_a_region_is_of_its_thread_though_its_object_is_shared(recorded: Path) -> None:
    shared, both_in = region("work"), threading.Barrier(3)

    def work() -> None:
        with shared:
            both_in.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    with shared:
        for thread in threads:
            thread.start()
        both_in.wait()
        for thread in threads:
            thread.join()
    found = regions(recorded)
    assert len({row["thread"] for row in found}) == 3
    assert all(row["end"] > row["start"] for row in found)


def test_exceptions_pass_through_and_end_the_region(recorded: Path) -> None:
    @region("fails")
    def fails() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        fails()
    with pytest.raises(ZeroDivisionError), region("divides"):
        _ = 1 / 0
    assert names(recorded) == ["fails", "divides"]


def test_a_decorated_function_stays_what_it_was(recorded: Path) -> None:
    @region("loss")
    def loss(x: int, *, scale: int = 2) -> int:
        """The loss."""
        return x * scale

    assert (loss(3), loss(3, scale=5)) == (6, 15)
    assert (loss.__name__, loss.__doc__) == ("loss", "The loss.")
    assert names(recorded) == ["loss", "loss"]


def test_an_async_function_is_in_its_region_until_its_result_is_there(recorded: Path) -> None:
    @region("fetch")
    async def fetch(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    async def both() -> list[float]:
        return list(await asyncio.gather(fetch(0.02), fetch(0.01)))

    assert asyncio.run(both()) == [0.02, 0.01]
    found = regions(recorded)
    assert [row["name"] for row in found] == ["fetch", "fetch"]
    assert found[0]["end"] - found[0]["start"] >= 20_000_000


def test_a_generator_is_in_its_region_only_while_it_runs(recorded: Path) -> None:
    @region("batches")
    def batches() -> Generator[int, str, str]:
        got = yield 1
        with region(f"got {got}"):
            pass
        try:
            yield 2
        except ValueError:
            yield 3
        return "done"

    steps = batches()
    assert next(steps) == 1
    time.sleep(0.2)  # that is whoever asks, not the generator
    assert steps.send("it") == 2
    assert steps.throw(ValueError("no")) == 3
    with pytest.raises(StopIteration, match="done"):
        next(steps)
    assert [*batches()] == [1, 2]
    found = regions(recorded)
    assert Counter(row["name"] for row in found) == {"batches": 7, "got it": 1, "got None": 1}
    assert sum(row["end"] - row["start"] for row in found) < 200_000_000


def test_a_generator_that_is_closed_early_closes_its_own(recorded: Path) -> None:
    closed = []

    @region("batches")
    def batches() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    for number in batches():
        if number == 2:
            break
    assert closed == [True]


def test_an_async_generator_hands_everything_through(recorded: Path) -> None:
    @region("stream")
    async def stream() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0)
        yield 2

    async def all_of() -> list[int]:
        return [item async for item in stream()]

    assert asyncio.run(all_of()) == [1, 2]
    assert Counter(names(recorded)) == {"stream": 3}


def test_what_is_no_function_and_no_name_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r'@region\("forward"\)'):

        @region  # type: ignore[arg-type]
        def forward() -> None: ...

    with pytest.raises(TypeError, match="around a function"):
        region("class")(int)


NAMES = {"\ud800 half": "? half", "zero\0byte": "zerobyte", "x" * 10_000: "x" * 4096, "": None, "größe": "größe"}


def test_names_of_any_sort_are_kept_within_bounds(recorded: Path) -> None:
    for name in NAMES:
        with region(name):
            pass
    assert names(recorded) == list(NAMES.values())


@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_a_region_of_any_name_has_its_tree(name: str, recorded: Path) -> None:
    with region(name) as found:
        time.sleep(0.001)
    assert found.tree().elapsed >= 1_000_000


def test_recording_stops_goes_on_and_ends(library: Path, tmp_path: Path) -> None:
    path = session.start(tmp_path, cuda=False)
    assert session.start() == path == session.path()
    with region("one"):
        assert session.stop() == path
    with region("two"):
        pass
    session.start()
    with region("three"):
        pass
    assert session.detach() == path
    again = session.start(tmp_path, cuda=False)
    assert again != path
    with region("four"):
        pass
    assert path is not None and again is not None
    assert [names(again), names(path)] == [["four"], ["one", "three"]]


def test_a_region_has_its_tree_while_it_is_open(recorded: Path) -> None:
    with region("epoch") as epoch:
        time.sleep(0.01)
        first = epoch.tree()
        time.sleep(0.01)
        second = epoch.tree()
    assert 10_000_000 <= first.elapsed < second.elapsed - 9_000_000
    assert second["host_parallel_efficiency"] == 1
    assert "neither CUDA nor MPI was recorded on the host: all of its time counts as useful" in second.notes


def test_a_program_that_stays_in_one_region_goes_on_telling(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ULLAGE_FLUSH", "20")
    path = session.start(tmp_path, cuda=False)
    assert path is not None
    followed, lives = Following(path), set()
    with region("epoch"):
        until = time.monotonic() + 30
        while len(lives) < 3 and time.monotonic() < until:
            time.sleep(0.02)
            followed.advance()
            lives.add(followed.life)
    session.detach()
    assert len(lives) == 3


@pytest.mark.parametrize("error", [RuntimeError("odd"), OSError(5, "disk"), MemoryError(), RecursionError(), ImportError("numpy")])
@pytest.mark.parametrize("name", ["flush", "advance", "tree"])
def test_whatever_fails_within_a_tree_is_its_note(name: str, error: Exception, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Recorder if name == "flush" else Following, name, fails)
    with region("epoch") as epoch:
        for found in (epoch.tree(), live.tree(), *((epoch.tree(all_ranks=True),) if name == "flush" else ())):
            assert isinstance(found, ProcessTree)
            assert len(found.notes) == 1
            assert str(found).endswith(found.notes[0])


def test_a_tree_never_raises(recorded: Path) -> None:
    with region("epoch") as epoch:
        epoch.tree()
        recorded.write_bytes(b"")
        recorded.write_bytes(b"ULLAGE\x01\n" + b"\xff" * 100)
        assert isinstance(epoch.tree(), ProcessTree)
        recorded.unlink()
        assert epoch.tree().notes[0].endswith("can't be read: No such file or directory")


def test_every_few_seconds_a_function_gets_the_trees(recorded: Path) -> None:
    got: list[tuple[ProcessTree, ProcessTree]] = []
    enough = threading.Event()

    def told(recent: ProcessTree, whole: ProcessTree) -> None:
        got.append((recent, whole))
        if len(got) >= 3:
            enough.set()

    calling = online.every(0.02, told)
    with region("epoch"):
        assert enough.wait(30)
    calling.stop()
    assert [recent.name for recent, _ in got[:3]] == ["last 0.02 s"] * 3
    assert got[0][1].elapsed < got[1][1].elapsed < got[2][1].elapsed
    assert all(recent.elapsed <= 20_000_000 for recent, _ in got)
    assert calling.errors == 0


def test_a_function_that_fails_is_counted_and_told_of_once(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calling = online.Every(1, lambda recent, whole: 1 / 0)
    with region("epoch"):
        for _ in range(3):
            calling.once()
    assert (calling.errors, calling.calls) == (3, 3)
    assert capsys.readouterr().err == (
        "ullage: the function of ullage.live.every(1, …) failed (ZeroDivisionError: division by zero); it is called on\n"
    )


def test_nobody_is_called_while_nothing_records() -> None:
    calling = online.Every(1, lambda recent, whole: 1 / 0)
    calling.once()
    assert calling.calls == 0
    with pytest.raises(ValueError, match="0 s is no period"):
        online.every(0, lambda recent, whole: None)


def test_a_folder_that_cant_be_made_is_one_clear_error(library: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UllageError, match="can't be made"):
        session.start(tmp_path / "file" / "in", cuda=False)
    assert session.recorder is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_records_into_a_file_of_its_own(recorded: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that other threads run
        child = os.fork()
    if child == 0:
        with region("child") as found:
            pass
        whole = found.tree().elapsed > 0
        os._exit(0 if whole and session.detach() else 1)
    assert os.waitpid(child, 0)[1] == 0
    with region("parent"):
        pass
    assert names(recorded) == ["parent"]
    [childs] = [path for path in recorded.parent.glob("*.ullage") if path != recorded]
    assert names(childs) == ["child"]


def test_a_program_that_is_killed_leaves_all_its_regions(library: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from ullage.live import session; from ullage.live.regions import region\n"
        "session.start(sys.argv[1], cuda=False)\n"
        "for number in range(3):\n"
        "    with region('step'): pass\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    [path] = tmp_path.glob("*.ullage")
    assert names(path) == ["step"] * 3


def test_where_the_recorder_cant_be_built_one_error_says_what_brings_it_and_regions_do_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from ullage.errors import UllageError; from ullage.live import session; from ullage.live.regions import region\n"
        "try: session.start(sys.argv[1], cuda=False)\n"
        "except UllageError as error: print(error.problem, error.hint, sep='\\n')\n"
        "with region('step') as step: pass\n"
        "print(step.tree().notes[0] == session.NOBODY)\n"
    )
    given = {name: value for name, value in os.environ.items() if name != "ULLAGE_RECORDER"}
    given |= {"CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)}
    words = [sys.executable, "-c", code, str(tmp_path / "recordings")]
    problem, hint, said = subprocess.run(words, env=given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert problem == "the recorder can't be built: CC names 'no-such-compiler', which is not there"
    assert "gcc" in hint and "ULLAGE_RECORDER" in hint
    assert said == "True"
    assert not (tmp_path / "recordings").exists()


def test_a_program_that_ends_without_a_word_leaves_a_whole_recording(library: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from ullage.live import session; from ullage.live.regions import region\n"
        "session.start(sys.argv[1], cuda=False)\n"
        "with region('epoch'): pass\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    [path] = tmp_path.iterdir()
    found, recording, _ = rows(path)
    assert ([row["name"] for row in found], recording.cut) == (["epoch"], "")


def test_under_ullage_run_regions_go_to_the_recorder_in_c(library: Path, tmp_path: Path) -> None:
    code = (
        "from ullage.live import session; from ullage.live.regions import region; import time\n"
        "step = region('step')\n"
        "for number in range(3):\n"
        "    with step, region('forward'): time.sleep(0.001)\n"
        "found = step.tree(); assert found.elapsed >= 3_000_000, found\n"
        "print(session.path())\n"
    )
    environment = os.environ | {"ULLAGE_RECORD": str(tmp_path), "ULLAGE_RECORDER": str(library)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    found, recording, _ = rows(Path(done.stdout.strip()))
    assert Counter(row["name"] for row in found) == {"step": 3, "forward": 3}
    assert recording.cut == ""


def test_a_recorder_that_is_none_leaves_the_program_alone(tmp_path: Path) -> None:
    code = "from ullage.live import session; print(session.recorder)"
    environment = os.environ | {"ULLAGE_RECORD": str(tmp_path), "ULLAGE_RECORDER": "/nowhere/librecorder.so"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("None\n", "")
    with pytest.raises(UllageError, match="is not the recorder"):
        Recorder(tmp_path)
