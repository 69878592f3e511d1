"""`ullage trace` as a command: exit codes, options, streams, signals, the gate of CI, the JSON that programs rely on."""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.traces.kineto_events import call, kernel, on_host
from tests.traces.trace_command import EVENTS, ask, profile, refused
from ullage.simulate.traces import kineto, talp
from ullage.simulate.traces.answers import answer
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.training import TrainingPlan, training

RUN = training(TrainingPlan(ranks=2, steps=3))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training job of two ranks and three steps, as PyTorch's profiler writes it."""
    folder = tmp_path_factory.mktemp("run")
    kineto.write(RUN, folder)
    return folder


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TALP's sums of the paper's use case 4."""
    return talp.write(pils(USE_CASES["4"].load), tmp_path_factory.mktemp("sums") / "talp.json")


# -- what is refused, and how -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--by", "node"),
        ("--mode", "both"),
        ("--bogus",),
        ("--top", "0"),
        ("--workers", "0"),
        ("--limit", "0"),
        ("--limit", "nan"),
        ("--limit", "inf"),
        ("--price", "nan"),
        ("--price", "inf"),
        ("--price", "-1"),
    ],
)
def test_a_command_line_that_says_nothing_is_a_usage_error(words: tuple[str, ...], run: Path) -> None:
    said = ask(*words, *([run] if words else []))
    assert (said.code, said.out) == (2, "") and "Error:" in said.err


@pytest.mark.parametrize("window", ["first", "1", "1:2:3", "a:b", "-1:2", "nan:1", "0:inf", "1e99:"])
def test_a_window_that_is_none_is_named(window: str, run: Path) -> None:
    assert f"'{window}' is not a window" in refused(run, "--window", window)


@pytest.mark.parametrize("window", ["5:1", "100:", ":0"])
def test_a_window_that_holds_nothing_says_how_long_the_trace_is(window: str, tmp_path: Path) -> None:
    assert "holds nothing of" in (said := refused(profile(tmp_path), "--window", window)) and "lasts 0.0002 s" in said


def test_steps_that_nobody_recorded_are_asked_for(tmp_path: Path) -> None:
    assert "has no profiler steps" in refused(profile(tmp_path), "--window", "steps")


@pytest.mark.parametrize(
    ("word", "says"), [("fowrard", "did you mean 'forward'?"), ("zzz", "lists all"), ("", "lists all")], ids=["near", "far", "empty"]
)
def test_an_unknown_region_is_met_with_the_nearest_one(word: str, says: str, run: Path) -> None:
    assert says in refused(run, "--region", word)


def test_an_unknown_region_of_sums_and_of_a_run_without_any(sums: Path, tmp_path: Path) -> None:
    assert "did you mean" in refused(sums, "--region", "gpus")
    assert "there are none" in refused(profile(tmp_path), "--region", "forward")


@pytest.mark.parametrize("rank", ["x", "a.json=", "-1", "1.5", "²"])
def test_a_rank_that_is_none_is_named(rank: str, run: Path) -> None:
    assert f"'{rank}' names no rank" in refused(run, "--rank", rank)


def test_a_rank_for_a_file_that_is_not_there_is_refused(run: Path) -> None:
    assert "is the name of no file" in refused(run, "--rank", "other.json=1")


@pytest.mark.parametrize("part", [(), ("compare",), ("scaling",)], ids=["trace", "compare", "scaling"])
@pytest.mark.parametrize(
    ("name", "says"),
    [("x.foo", "no .foo format"), ("x", "not say in which"), ("no/x.json", "no folder"), ("d.json", "a folder")],
)
def test_a_file_that_can_not_take_the_answer_is_refused_before_anything_is_read(
    part: tuple[str, ...], name: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "d.json").mkdir()
    unread = [tmp_path / "not-there.json"] * (2 if part else 1)
    assert says in refused(*part, *unread, "--out", tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["d.json"]


def test_a_timeline_of_sums_is_refused_and_their_tree_is_drawn(sums: Path, tmp_path: Path) -> None:
    assert "hold sums" in refused(sums, "--out", tmp_path / "x.pftrace")
    assert ask(sums, "--out", tmp_path / "x.svg").code == 0
    assert (tmp_path / "x.svg").read_text().startswith("<svg")


# -- what is given ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "svg", "json", "txt", "parquet", "pftrace"])
def test_every_form_is_written_and_nothing_is_printed(suffix: str, run: Path, tmp_path: Path) -> None:
    said = ask(run, "--out", tmp_path / f"x.{suffix}")
    assert (said.code, said.out, said.err) == (0, "", f"wrote {tmp_path}/x.{suffix}\n")
    assert (tmp_path / f"x.{suffix}").stat().st_size > 800 and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("by", "first"), [("rank", "rank 0"), ("device", "GPU 0"), ("region", "optimizer"), ("step", "ProfilerStep#0")])
def test_each_part_of_a_run_has_its_own_trees(by: str, first: str, run: Path) -> None:
    table = next(part for part in ask(run, "--by", by).out.split("\n\n") if part.startswith(f"efficiencies by {by} "))
    assert table.splitlines()[1].startswith(first)


@pytest.mark.parametrize(("by", "says"), [("rank", "No times by rank"), ("device", "No times by device"), ("step", "No step was")])
def test_parts_that_sums_do_not_have_are_said_to_be_missing(by: str, says: str, sums: Path) -> None:
    assert says in ask(sums, "--by", by).out


def test_tables_are_as_long_as_asked_for_and_say_what_is_left(run: Path) -> None:
    said = ask(run, "--top", "1", "--by", "region").out
    assert "… 2 more; --top shows them" in said  # of optimizer, backward, forward
    (few, many), by = (said.partition("by region ")[2].partition("\n\n")[0] for said in (said, ask(run, "--top", "3").out)), "\nforward  "
    assert by not in few and by in many


def test_an_open_window_is_the_whole_run_and_seconds_cut_it(tmp_path: Path) -> None:
    path = profile(tmp_path)  # 200 us
    assert [ask(path, "--window", w, "--json").json["elapsed_ns"] for w in (":", "0.00005:", ":0.00005")] == [200_000, 150_000, 50_000]


def test_a_region_narrows_down_the_tables_too(run: Path) -> None:
    said, part, whole = ask(run, "--region", "forward").out, ask(run, "--region", "forward", "--json").json, ask(run, "--json").json
    assert "of region 'forward'" in said and "of the whole run" not in said and "why devices idled" in said
    assert part["tables_of"] is None
    totals = part["device_totals"]
    busy = sum(totals[f"{what}_time"] for what in ("kernel", "collective", "memory"))
    assert part["idle"]["total_ns"] == totals["devices"] * totals["elapsed"] - busy
    assert 0 < part["kernels"]["kernel_time"] < whole["kernels"]["kernel_time"]


def test_steps_and_regions_are_the_scenarios(run: Path) -> None:
    data = ask(run, "--json").json
    assert [step["name"] for step in data["steps"]] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    whole, forward = answer(RUN, apart=True), answer(RUN, "forward", apart=True)
    assert data["elapsed_ns"] == whole.host.elapsed
    for found, true in ((data, whole), (next(r for r in data["regions"] if r["name"] == "forward"), forward)):
        assert true.device is not None
        device, stated = found["device_totals"], true.device
        times = ("devices", "elapsed", "kernel_time", "collective_time", "memory_time", "max_kernel_time", "max_active_time")
        assert [device[name] for name in times] == [getattr(stated, name) for name in times]


def test_the_status_is_partial_when_something_is_missing_and_says_what(tmp_path: Path) -> None:
    whole = profile(tmp_path)
    assert ask(whole, "--json").json["status"] == "whole"
    whole.write_text(whole.read_text()[:-30])
    data, said = ask(whole, "--json").json, ask(whole).out
    assert data["status"] == "partial" and said.startswith("partial: Device parallel efficiency ")
    assert sum("ends inside event 3" in note for note in data["problems"]) == 2  # what came before is used; nobody can tell idle after it
    assert "ends inside event 3" in refused(whole, "--strict")


# -- what programs rely on ----------------------------------------------------------------------------------------------

KEYS = """files source status mode window region elapsed_s elapsed_ns host device bounds cannot_tell host_totals device_totals processes
 devices bill host_bill regions ranks by_device steps idle code kernels collectives restated problems"""
HOST = {"parallel_efficiency", "mpi_parallel_efficiency", "load_balance", "communication_efficiency", "device_offload_efficiency"}
DEVICE = {"parallel_efficiency", "load_balance", "communication_efficiency", "orchestration_efficiency"}


def test_the_data_has_the_keys_that_are_promised(run: Path, sums: Path) -> None:
    for place in (run, sums):
        data = ask(place, "--json").json
        assert set(KEYS.split()) <= data.keys()
        assert set(data["window"]) == {"start_ns", "end_ns", "recorded_ns", "rule"}
        assert data["host"].keys() >= HOST and data["device"].keys() >= DEVICE
        assert all({"device", "kernel_s", "memory_s", "collective_s", "idle_s"} <= d.keys() for d in data["devices"])
        assert all({"rank", "useful_s", "offload_s", "communication_s"} <= p.keys() for p in data["processes"])
    assert len(ask(run, "--json").json["devices"]) == 2


def test_products_hold_in_the_data(run: Path) -> None:
    device = ask(run, "--json").json["device"]
    product = device["load_balance"] * device["communication_efficiency"] * device["orchestration_efficiency"]
    assert math.isclose(device["parallel_efficiency"], product, rel_tol=1e-12)


@pytest.mark.parametrize("events", [EVENTS, EVENTS[:1], EVENTS[1:2], EVENTS[2:]], ids=["all", "calls", "kernels", "operators"])
def test_the_data_is_json_whatever_the_run_lacks(events: tuple[Any, ...], tmp_path: Path) -> None:
    path = profile(tmp_path, events=events)
    assert ask(path, "--json", "--price", "0").json["elapsed_ns"] > 0
    assert ask("compare", path, path, "--json").json and ask("scaling", path, path, "--json").json


@pytest.mark.parametrize(("more", "heading"), [((), "money at the price given"), (("--currency", "EUR"), "money at the price given, EUR")])
def test_amounts_say_their_price_with_and_without_a_currency(run: Path, more: tuple[str, ...], heading: str) -> None:
    assert any(line.rstrip().endswith(heading) for line in ask(run, "--price", "2", *more).out.splitlines())


# -- compare and scaling ------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A device busy for 150 of 200 us, and for 100 of 200 us, by a clock that counts nanoseconds."""
    return profile(tmp_path, "before.json", events=_busy(150.0)), profile(tmp_path, "after.json", events=_busy(100.0))


def _busy(long: float) -> tuple[Any, ...]:
    return call(0.0, 10.0), kernel(20.0, long), on_host(0.0, 200.0, "aten::mm", cat="cpu_op")


@pytest.mark.parametrize(("limit", "code"), [("0.66", 0), ("0.68", 4), ("speed=1", 0), ("speed=1.01", 4)])
def test_the_gate_is_an_exit_status_and_the_comparison_is_given_all_the_same(limit: str, code: int, two: tuple[Path, Path]) -> None:
    said = ask("compare", *two, "--fail-under", limit)  # 0.5 / 0.75 is 0.667
    assert said.code == code and "0.75" in said.out and said.err == ""
    assert ask("compare", *two, "--fail-under", limit, "--json").json


def test_the_gate_stays_shut_when_a_coarse_clock_leaves_the_answer_open(tmp_path: Path) -> None:
    # in steps of 1 us the efficiencies are 0.5 and 0.75 give or take 0.005
    runs = [
        profile(tmp_path, f"{long}.json", events=(call(0, 10), kernel(20, long), on_host(0, 200, "x", cat="cpu_op"))) for long in (150, 100)
    ]
    said = ask("compare", *runs, "--fail-under", "0.66")
    assert said.code == 4 and "cannot tell, so not passed" in said.out


@pytest.mark.parametrize("limit", ["x", "0", "-1", "nan", "inf", "speed=", "=0.9x"])
def test_a_limit_that_is_none_is_refused_before_anything_is_read(limit: str, tmp_path: Path) -> None:
    assert "is no limit" in refused("compare", tmp_path / "no-a.json", tmp_path / "no-b.json", "--fail-under", limit)


def test_a_gate_for_an_unknown_metric_is_refused(two: tuple[Path, Path]) -> None:
    assert "orchestration" in refused("compare", *two, "--fail-under", "orchestration=0.9")


@pytest.mark.parametrize("suffix", ["svg", "json", "txt"])
def test_scaling_is_written_in_every_form(suffix: str, two: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / f"scaling.{suffix}"
    assert ask("scaling", f"one={two[0]}", f"two={two[1]}", "--strong", "--out", out).code == 0
    assert "one" in out.read_text() and "two" in out.read_text()


def test_scaling_takes_names_a_reference_and_the_kind(two: tuple[Path, Path]) -> None:
    data = ask("scaling", f"a={two[0]}", f"b={two[1]}", "--reference", "b", "--weak", "--json").json
    assert "weak" in json.dumps(data) and data["reference"] == "b"
    assert "c" in refused("scaling", f"a={two[0]}", f"b={two[1]}", "--reference", "c")
    assert "does not scale" in refused("scaling", two[0])


# -- streams and signals ------------------------------------------------------------------------------------------------


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "ullage", "trace", *map(str, words)]


def test_a_reader_that_leaves_and_a_closed_stdout_are_no_tracebacks(run: Path) -> None:
    script = '"$@" | head -1; echo ${PIPESTATUS[0]}; "$@" >&-; echo $?'
    done = subprocess.run(["bash", "-c", script, "-", *command(run)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[1:] == ["0", "0"] and done.stderr == ""


def on_a_terminal(words: list[str], **environment: str) -> str:
    main, side = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | environment
    with subprocess.Popen(words, stdout=side, stderr=side, env=env) as process:
        os.close(side)
        said = b"".join(_until_closed(main))
        assert process.wait(timeout=120) == 0
    os.close(main)
    return said.decode()


def _until_closed(handle: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(handle, 1 << 16)
        except OSError:  # how a terminal of which nobody writes any more says so
            return
        if not part:
            return
        yield part


def test_a_terminal_shows_colours_and_progress_and_no_color_turns_colours_off(run: Path) -> None:
    said = on_a_terminal(command(run))
    assert "\x1b[32m0.99" in said and "traces" in said
    plain = on_a_terminal(command(run), NO_COLOR="1")
    assert "\x1b[3" not in plain and plain.replace("\r\n", "\n").endswith(ask(run).out)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_command(how: signal.Signals, tmp_path: Path) -> None:
    many = [kernel(2 * n, 1) for n in range(200_000)]
    first = profile(tmp_path, "rank0.json", events=(call(0, 5), *many))
    for rank in (1, 2, 3):
        (tmp_path / f"rank{rank}.json").write_bytes(first.read_bytes())
    process = subprocess.Popen(command(tmp_path, "--workers", "2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert _within(60, lambda: len(_session(process.pid)) >= 3)  # the command and its two workers
        process.send_signal(how)
        process.communicate(timeout=60)
        assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
        assert _within(60, lambda: not _session(process.pid))
    finally:
        for left in _session(process.pid):
            os.kill(left, signal.SIGKILL)
        process.wait(timeout=60)


def _within(seconds: float, true: Any) -> bool:
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(found)


def _session(leader: int) -> list[int]:
    """The processes of a session that live, by what the system says of each."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def test_a_script_without_a_guard_is_not_run_again_by_the_workers(run: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import ullage\nprint('once')\nprint(len(ullage.read_trace({str(run)!r}, workers=2).rows('rank')))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["once", "2"]
