"""The runner of the GPU checks with planted faults: each check is a real process on the GPU in simulated time, and some go wrong."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from gpu.code_mark import code_mark, measuring_modules
from gpu.evidence import answered, attempts, note_attempt, outweighs, put, read
from gpu.pack import pack_parts, unpack
from gpu.session import Session, is_answered, run
from gpu.summary import summary
from gpu.timetable import STAGES, TABLE, Entry, entries, next_entry, time_limit

from gpu import processes

ROOT = Path(__file__).parents[2]
H100 = "nvidia-h100-80gb-hbm3"
START = [sys.executable, str(ROOT / "tests" / "gpu" / "gpu_start.py")]
QUICK = ("peaks", "cycle_counters", "sampling_overhead")  # of different stages, with the least imports


def quick(name, seconds=30.0):
    """Return the table's line of a check, which may take so many seconds here."""
    (entry,) = entries([name])
    return Entry(name, entry.stage, seconds, entry.worth, entry.least, entry.needs, entry.always)


def go(folder, names=QUICK, faults=(), seconds=600.0, limit=60.0, **options):
    """Run checks in a session of its own; return its exit code and what it printed."""
    said = []
    environment = {"ULLAGE_TEST_FAULTS": json.dumps(dict(faults)), "ULLAGE_TEST_RUNS": str(folder / "runs")}
    plain = {"archive": folder / "archive", "environment": environment, "has_module": lambda name: True, "print_line": said.append}
    session = Session(START, folder / "results", time.time(), seconds, **{**plain, **options})
    return run(session, [quick(name, limit) for name in names]), "\n".join(said)


def runs(folder):
    """Return the checks that have begun, in order; identifying and probing left out."""
    return [name for name in (folder / "runs").read_text().split() if name not in ("identify", "probe")]


def verdict(folder, name):
    found = read(folder / "results" / H100, name)
    return None if found is None else found["verdict"]


def copy_of(finished, folder):
    """Give a test a session that has ended, to go on from: folders of its own; returns what the session said."""
    shutil.copytree(finished[0], folder, dirs_exist_ok=True)
    return finished[1]


@pytest.fixture(scope="module")
def quick_session(tmp_path_factory):
    """A session that ran the quick checks without a fault: its folder, and its exit code and what it printed."""
    folder = tmp_path_factory.mktemp("quick")
    return folder, go(folder)


@pytest.fixture(scope="module")
def counter_session(tmp_path_factory):
    """One that ran the check of cycle counters alone."""
    folder = tmp_path_factory.mktemp("counters")
    return folder, go(folder, ["cycle_counters"])


# --- what is planned ---


def test_the_table_has_each_check_of_the_folder_once_and_its_stages_in_order():
    names = [entry.name for entry in TABLE]
    assert sorted(names) == sorted(path.stem.removeprefix("check_") for path in (ROOT / "gpu").glob("check_*.py"))
    assert [entry.stage for entry in TABLE] == sorted(entry.stage for entry in TABLE) and {e.stage for e in TABLE} == set(STAGES)


def test_identity_and_the_central_claim_are_settled_within_three_minutes():
    first = [entry for entry in TABLE if entry.stage <= 2]
    assert first[0].name == "peaks" and first[1].name == "ofu_gemm" and sum(entry.seconds for entry in first) < 180


def test_all_but_the_long_sweeps_fits_into_twenty_five_minutes_of_calls():
    assert sum(entry.seconds for entry in TABLE if entry.stage < 7) < 25 * 60
    assert max(entry.fewest for entry in TABLE) < 540, "each fits into a call"


def test_a_check_that_watches_the_clock_gets_what_is_left_and_one_that_does_not_must_fit_whole():
    whole, resumable = Entry("a", 1, 50, ""), Entry("b", 2, 300, "", least=30)
    assert next_entry([whole, resumable], 50) == (whole, 50)
    assert next_entry([whole], 49.9) is None
    # 20 s of those left are kept, so that it comes to its own end
    assert next_entry([resumable], 50) == (resumable, 30) and next_entry([resumable], 49.9) is None
    assert next_entry([resumable], 400) == (resumable, 300)


def test_no_check_may_take_longer_than_the_call():
    assert time_limit(Entry("a", 1, 50, ""), 50, left=60) == 60
    assert time_limit(Entry("a", 1, 50, ""), 50, left=1000) == 120
    assert time_limit(Entry("b", 1, 300, "", least=10), 200, left=1000) == 220


# --- what is said of code ---


def test_the_mark_of_the_code_follows_what_takes_part_in_a_measurement():
    of_trees = measuring_modules("gpu.check_cupti_trees")
    assert {"gpu.cupti_load_program", "gpu.cupti_device", "ullage.live.trees"} <= set(of_trees), "programs started by name take part"
    assert "gpu.evidence" not in of_trees and not [name for name in of_trees if name.startswith(("ullage.render", "ullage.reports"))]
    assert code_mark("gpu.check_peaks") != code_mark("gpu.check_ofu_gemm") and len(code_mark("gpu.check_peaks")) == 16


def test_a_new_microbenchmark_is_new_code_of_the_check_that_runs_them_all(monkeypatch):
    from gpu import code_mark as module

    before = code_mark.__wrapped__("gpu.check_benches", "ullage.benches")
    plain = module._members
    monkeypatch.setattr(module, "_members", lambda package: [*plain(package), "ullage.live.trees"] if package else [])
    assert module.code_mark.__wrapped__("gpu.check_benches", "ullage.benches") != before
    assert module.code_mark.__wrapped__("gpu.check_peaks") == code_mark("gpu.check_peaks")


def test_evidence_settles_a_question_for_its_branch_of_the_driver_and_its_code_alone():
    found = {"verdict": "confirmed", "unfinished": "", "code": "1", "machine": {"driver": "580.159.03", "uuid_hash": "GPU-1"}}
    assert answered(found, driver="580.2", code="1") and answered({**found, "verdict": "refuted"}, driver="580.2", code="1")
    assert not answered(found, driver="590.1", code="1") and not answered(found, driver="580.2", code="2")
    assert not answered({**found, "verdict": "broken"}, driver="580.2", code="1") and not answered(None, driver="580.2", code="1")
    assert not answered({**found, "unfinished": "more"}, driver="580.2", code="1")
    assert answered(found, driver="580.2", code="1", board="GPU-1") and not answered(found, driver="580.2", code="1", board="GPU-2")


def test_what_a_gpu_has_answered_is_not_given_up_for_an_attempt_that_failed():
    order = ("not measured", "broken", "refuted")
    for place, verdict in enumerate(order):
        for earlier_place, earlier in enumerate(order):
            assert outweighs({"verdict": verdict}, {"verdict": earlier}) is (place >= earlier_place)
    assert outweighs({"verdict": "refuted"}, {"verdict": "confirmed"}) and outweighs({"verdict": "not measured"}, None)


# --- a session without faults ---


def test_a_second_start_repeats_nothing_but_the_identity(quick_session, tmp_path):
    code, said = copy_of(quick_session, tmp_path)
    assert code == 0 and [verdict(tmp_path, name) for name in QUICK] == ["confirmed"] * 3, said
    assert runs(tmp_path) == list(QUICK)
    code, said = go(tmp_path)
    assert code == 0 and runs(tmp_path) == [*QUICK, "peaks"] and "1 of 3 checks to run" in said
    go(tmp_path, QUICK[1:], again=True)
    assert runs(tmp_path) == [*QUICK, "peaks", *QUICK[1:]]


def test_evidence_at_other_code_is_measured_again(counter_session, tmp_path):
    copy_of(counter_session, tmp_path)
    path = tmp_path / "results" / H100 / "cycle_counters.json"
    put(path, json.dumps({**json.loads(path.read_text()), "code": "0" * 16}).encode())
    go(tmp_path, ["cycle_counters"])
    assert runs(tmp_path) == ["cycle_counters"] * 2


def test_the_lines_come_one_a_result_with_the_seconds_and_the_summary_says_what_is_confirmed(quick_session, tmp_path):
    _, said = copy_of(quick_session, tmp_path)
    (line,) = [line for line in said.splitlines() if " cycle_counters " in line]
    assert line.split()[1:4] == ["s", "cycle_counters", "confirmed"] and "cycles are counted per SM" in line
    told = (tmp_path / "results" / H100 / "README.md").read_text()
    assert told.startswith("# NVIDIA H100 80GB HBM3\n")
    assert f"3 of {len(TABLE)} checks confirmed, 0 refuted, {len(TABLE) - 3} open" in told
    assert "| [`ofu_gemm`](ofu_gemm.json) | OFU against the MFU of known products | not reached yet |" in told


# --- planted faults ---


def test_a_check_that_hangs_is_ended_and_the_next_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu.session.time_limit", lambda entry, seconds, left: 4.0 if entry.name == "peaks" else 120.0)
    code, said = go(tmp_path, QUICK[:2], {"peaks": "hang and leave a process"})
    assert code == 3 and verdict(tmp_path, "peaks") == "broken" and "peaks" in said
    assert read(tmp_path / "results" / H100, "peaks")["reason"].startswith("it did not end within ")
    assert not [pid for pid in processes.descendants() if b"601" in _command(pid)], "what it left behind is ended too"


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.full
def test_after_a_hang_the_others_run_and_the_next_start_takes_it_last(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu.session.time_limit", lambda entry, seconds, left: 12.0 if entry.name == "cycle_counters" else 120.0)
    code, said = go(tmp_path, faults={"cycle_counters": "hang"})
    assert code == 3 and "cycle_counters     broken       it did not end within 12 s" in said
    assert verdict(tmp_path, "sampling_overhead") == "confirmed" and runs(tmp_path) == list(QUICK)
    code, _ = go(tmp_path, ["peaks", "cycle_counters", "nvml_recording"])
    assert code == 0 and runs(tmp_path)[3:] == ["peaks", "nvml_recording", "cycle_counters"]


def test_a_check_that_crashes_leaves_its_signal_and_its_last_words(tmp_path):
    code, said = go(tmp_path, QUICK[1:], {"cycle_counters": "crash"})
    found = read(tmp_path / "results" / H100, "cycle_counters")
    assert code == 3 and found["verdict"] == "broken"
    assert found["reason"].startswith("it ended with SIGSEGV (") and "a word before the end" in found["reason"]
    assert str(ROOT) not in found["reason"], "places name the machine's folders"
    assert verdict(tmp_path, "sampling_overhead") == "confirmed" and "open: cycle_counters" in said


def test_a_check_that_ends_without_evidence_is_broken(tmp_path):
    go(tmp_path, ["cycle_counters"], {"cycle_counters": "end without a word"})
    assert read(tmp_path / "results" / H100, "cycle_counters")["reason"] == "it ended without evidence"


@pytest.mark.parametrize(
    ("fault", "reason"), [("missing module", "ModuleNotFoundError: "), ("raise", "ZeroDivisionError: division by zero")]
)
def test_what_a_check_raises_breaks_it_alone(fault, reason, tmp_path):
    code, _ = go(tmp_path, QUICK[1:], {"cycle_counters": fault})
    assert code == 3 and read(tmp_path / "results" / H100, "cycle_counters")["reason"].startswith(reason)
    assert verdict(tmp_path, "sampling_overhead") == "confirmed"


def test_a_missing_library_costs_its_own_checks_and_no_time(tmp_path):
    code, said = go(tmp_path, ["peaks", "tile_flops", "cycle_counters"], has_module=lambda name: name != "torch")
    assert code == 3 and runs(tmp_path) == ["peaks", "cycle_counters"]
    assert "tile_flops         not measured no torch on this machine" in said and verdict(tmp_path, "cycle_counters") == "confirmed"


@pytest.mark.full
def test_what_a_check_found_before_it_hung_stands(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu.session.time_limit", lambda entry, seconds, left: 15.0)
    go(tmp_path, ["cycle_counters"], {"cycle_counters": "half and hang"})
    found = read(tmp_path / "results" / H100, "cycle_counters")
    assert found["verdict"] == "broken" and found["reason"].startswith("it did not end within 15 s")
    assert len(found["rows"]) == 1 and found["answers"] == {"units": 1} and found["unfinished"]


def test_a_gpu_that_answers_no_more_ends_the_session_with_all_that_was_found(tmp_path):
    code, said = go(tmp_path, faults={"cycle_counters": "crash", "probe": "refuse"})
    assert code == 3 and "the GPU answers no more: it ended with exit code 1" in said
    assert runs(tmp_path) == ["peaks", "cycle_counters"] and verdict(tmp_path, "peaks") == "confirmed"
    assert unpack(sorted((tmp_path / "archive").glob("*")), tmp_path / "there") > 0
    assert read(tmp_path / "there" / H100, "cycle_counters")["verdict"] == "broken"


def test_a_full_disk_is_said_and_what_was_found_is_printed(tmp_path):
    code, said = go(tmp_path, QUICK[1:], {"cycle_counters": "full disk"})
    assert code == 3 and "cycle_counters: its evidence could not be written (File too large)" in said
    (line,) = [line for line in said.splitlines() if '"format"' in line]
    assert json.loads(line[line.index("{") :])["answers"]["counted"] == "per SM"
    assert verdict(tmp_path, "cycle_counters") == "broken" and verdict(tmp_path, "sampling_overhead") == "confirmed"
    assert not list((tmp_path / "results" / H100).glob(".*")), "nothing half-written is left"


def test_a_disk_that_is_really_full_keeps_no_check_from_running(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs privileges")
    try:
        (tmp_path / "results").symlink_to(place)
        code, said = go(tmp_path, QUICK[:2], archive=None)
        assert code == 3 and runs(tmp_path) == list(QUICK[:2]) and "No space left on device" in said
        assert verdict(tmp_path, "peaks") == "confirmed", "what was written before stays whole"
        assert not list(place.rglob(".*.new"))
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("fault", ["no GPU", "hang", "crash"])
def test_without_a_gpu_or_with_a_driver_that_hangs_it_says_so_and_ends_with_1(fault, tmp_path, monkeypatch):
    monkeypatch.setattr("gpu.session.IDENTIFYING", 4.0 if fault == "hang" else 60.0)
    code, said = go(tmp_path, faults={"identify": fault})
    expected = {"no GPU": "NVML finds no GPU; a container", "hang": "did not end within 4 s", "crash": "SIGSEGV"}[fault]
    assert code == 1 and said.startswith("no GPU: ") and expected in said and not (tmp_path / "results").exists()


def test_a_contradiction_is_refuted_and_not_asked_again(counter_session, tmp_path):
    copy_of(counter_session, tmp_path)
    path = tmp_path / "results" / H100 / "cycle_counters.json"
    put(path, json.dumps({**json.loads(path.read_text()), "verdict": "refuted", "reason": "cycles run backwards"}).encode())
    code, said = go(tmp_path, ["cycle_counters"])
    assert code == 3 and runs(tmp_path) == ["cycle_counters"] and "refuted: cycle_counters" in said
    assert "| [`cycle_counters`](cycle_counters.json) | cycles run backwards |" in summary(tmp_path / "results" / H100)


# --- cut at any second ---


def _started(folder, names=QUICK):
    """Start the runner as a process of its own, as a person or a lease does."""
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'src')!r}]; from gpu.run import main; "
        f"sys.exit(main(sys.argv[1:], command={START!r}, has_module=lambda name: True))"
    )
    environment = {**os.environ, "ULLAGE_TEST_RUNS": str(folder / "runs"), "ULLAGE_TEST_FAULTS": "{}"}
    words = [*names, "--out", str(folder / "results"), "--archive", str(folder / "archive")]
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def _all_packed(folder):
    """Unpack the archive beside the results; whatever is in it must be whole."""
    parts = sorted((folder / "archive").glob("evidence-*.tar.gz"))
    unpack(parts, folder / "unpacked")
    return {path.name: json.loads(path.read_text()) for path in (folder / "unpacked").rglob("*.json") if path.parent.name == H100}


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.full) for seed in range(24)])
def test_a_call_that_is_cut_at_a_random_second_goes_on_where_it_was(seed, tmp_path):
    generator, count = random.Random(seed), 0
    while True:
        process = _started(tmp_path)
        cut = count < 4
        if cut:
            time.sleep(generator.uniform(0.2, 5.0))
            os.killpg(process.pid, generator.choice([signal.SIGKILL, signal.SIGTERM]))
        said, _ = process.communicate(timeout=120)
        for name, found in _all_packed(tmp_path).items():
            assert found["check"] == Path(name).stem, "every file that came back is whole"
        count += 1
        if not cut:
            break
    assert process.returncode == 0, said
    assert [verdict(tmp_path, name) for name in QUICK] == ["confirmed"] * 3
    assert {f"{name}.json" for name in QUICK} <= set(_all_packed(tmp_path))
    # a check begins again only where it was cut: each cut costs one beginning at most, and what was answered is not asked again
    begun = runs(tmp_path)
    ended = [one["check"] for one in attempts(tmp_path / "results" / H100) if one["verdict"] == "confirmed" and one["check"] != "peaks"]
    assert len([name for name in begun if name != "peaks"]) <= 2 + count
    assert len(ended) <= 2


def test_ending_the_runner_leaves_nothing_behind_and_packs_what_it_has(tmp_path):
    process = _started(tmp_path, ["peaks", "cycle_counters", "clock_noise"])
    deadline = time.monotonic() + 60
    while verdict(tmp_path, "peaks") is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "evidence: " in said and "peaks.json" in _all_packed(tmp_path)


# --- processes ---


def test_a_process_tells_how_it_ended():
    told = [processes.run([sys.executable, "-c", code], 20, lambda line: False) for code in ("", "exit(3)", "import os; os.abort()")]
    assert [one.code for one in told] == [0, 3, -6]
    assert [one.problem for one in told] == ["", "it ended with exit code 3", "it ended with SIGABRT"]


def test_lines_come_while_a_process_runs_and_only_those_not_shown_are_kept():
    shown = []
    code = "print('| one'); print('two'); import sys; print('three', file=sys.stderr); exit(1)"
    ended = processes.run([sys.executable, "-c", code], 20, lambda line: line.startswith("| ") and not shown.append(line))
    assert shown == ["| one"] and ended.problem == "it ended with exit code 1 (two | three)"


def test_descendants_in_other_sessions_are_ended_too_but_none_of_the_callers_others(tmp_path):
    mine = subprocess.Popen(["sleep", "602"])
    code = "import subprocess, time; subprocess.Popen(['sleep', '603'], start_new_session=True); time.sleep(60)"
    try:
        processes.adopt_orphans()
        ended = processes.run([sys.executable, "-c", code], 1.0, lambda line: False)
        assert ended.code is None and mine.poll() is None
        assert not [pid for pid in processes.descendants() if b"603" in _command(pid)]
    finally:
        mine.kill()
        mine.wait()


# --- journal and archive ---


def test_a_line_of_the_journal_that_was_cut_off_spoils_no_other(tmp_path):
    found = {"check": "a", "date": "", "seconds": 1.0, "verdict": "broken", "reason": "", "code": "", "unfinished": "", "machine": {}}
    note_attempt(tmp_path, found)
    with (tmp_path / "attempts.jsonl").open("a") as file:
        file.write('{"check": "b", "da')
    note_attempt(tmp_path, {**found, "check": "c"})
    assert [one["check"] for one in attempts(tmp_path)] == ["a", "c"]


def test_archives_stay_below_their_size_and_old_ones_go(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu.pack.PART", 2500)
    folder = tmp_path / "results" / H100
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"{number}.bin").write_bytes(random.Random(number).randbytes(1000))
    paths = pack_parts(tmp_path / "results", tmp_path / "out")
    assert [path.name for path in paths] == ["evidence-1.tar.gz", "evidence-2.tar.gz", "evidence-3.tar.gz"]
    assert all(path.stat().st_size < 3500 for path in paths)
    assert unpack(paths, tmp_path / "there") == 6 and (tmp_path / "there" / H100 / "5.bin").read_bytes() == random.Random(5).randbytes(1000)
    monkeypatch.setattr("gpu.pack.PART", 10**6)
    pack_parts(tmp_path / "results", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["evidence-1.tar.gz"]
    with tarfile.open(tmp_path / "out" / "evidence-1.tar.gz") as archive:
        assert len(archive.getnames()) == 6


def test_evidence_of_another_board_counts_unless_this_very_one_is_asked_for(counter_session, tmp_path):
    copy_of(counter_session, tmp_path)
    path = tmp_path / "results" / H100 / "cycle_counters.json"
    found = json.loads(path.read_text())
    put(path, json.dumps({**found, "machine": {**found["machine"], "uuid_hash": "GPU-another"}}).encode())
    plain = Session(START, tmp_path / "results", 0.0, 60.0, machine={**found["machine"]})
    assert is_answered(plain, quick("cycle_counters"))
    plain.this_board = True
    assert not is_answered(plain, quick("cycle_counters"))
