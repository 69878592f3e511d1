"""The main job as its users run it: every format, a store, real servers; each against the simulator's known answers."""

from __future__ import annotations

import functools
import gzip
import json
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

import ullage
from ullage.cli import cli
from ullage.errors import NoSampleError

FORMATS = ("parquet", "csv", "exposition", "prometheus", "acme", "dmon")


def run(*words: str, code: int = 0) -> str:
    outcome = CliRunner().invoke(cli, list(words))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit | ullage.UllageError):
        raise outcome.exception
    assert (1 if isinstance(outcome.exception, ullage.UllageError) else outcome.exit_code) == code, outcome.output
    return outcome.stdout


def asked(*words: str) -> dict:
    return json.loads(run("fleet", *words, "--json"))


@functools.cache
def asked_once(*words: str) -> dict:
    """The answer over files that no test changes; it is not to be changed either."""
    return asked(*words)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory) -> Path:
    """32 H100s for 3 h with everything planted that finds a place, in every format."""
    folder = tmp_path_factory.mktemp("fleet")
    for form in FORMATS:
        planted = (
            ("shared", "stuck", "stale", "held_idle", "straggler") if form not in ("acme", "dmon") else ("stuck", "held_idle", "straggler")
        )
        faults = [word for name in planted for word in ("--fault", name)]
        run(
            "simulate",
            "--gpus",
            "32",
            "--hours",
            "3",
            "--seed",
            "7",
            "--model",
            "NVIDIA H100 80GB HBM3",
            "--format",
            form,
            "--out",
            str(folder / form),
            *faults,
        )
    return folder


def given(fleet: Path, form: str) -> tuple[list[str], dict]:
    key = json.loads((fleet / form / "answers.json").read_text())
    words = [str(fleet / form / "samples"), "--jobs", str(fleet / form / "jobs.csv")]
    return words + (["--gpu", "H100"] if form in ("acme", "dmon") else []), key


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_known_answer(fleet, form):
    words, key = given(fleet, form)
    answer = asked_once(*words)
    # what is written with fewer digits (dmon: whole percent) can't give more back
    tolerance = 0.004 if form == "dmon" else 1e-4
    whole = key["fleet"]
    assert answer["ofu"] == pytest.approx(whole["trusted_ofu"], abs=tolerance)
    assert answer["ofu_all"] == pytest.approx(whole["sampled_ofu"], abs=tolerance)
    assert answer["gpu_hours"] == pytest.approx(whole["gpu_hours"], rel=0.005)
    names = ("not_allocated", "held_idle", "load_balance", "activity", "sm_fill", "tensor_issue")
    tree = {name: answer["tree"][name] for name in names}
    assert tree == pytest.approx({name: whole["trusted_chain"][name] for name in tree}, abs=0.01 if form == "dmon" else 2e-3)


@pytest.mark.parametrize("form", ["parquet", "exposition", "prometheus"])
def test_jobs_ledger_and_verdicts_are_the_planted_ones(fleet, form):
    words, key = given(fleet, form)
    answer = asked_once(*words)
    groups = {g["key"]: g for g in answer["groups"]}
    for job, planted in key["jobs"].items():
        if planted["trusted_ofu"] is not None and job in groups:
            assert groups[job]["ofu"] == pytest.approx(planted["trusted_ofu"], abs=1e-4), job
    hours = {owner: time / 3_600_000 for owner, time in key["ledger"].items()}
    assert answer["ledger"] == pytest.approx(hours, abs=0.2)
    parts = sum(time for owner, time in answer["ledger"].items() if owner != "total")
    assert parts == pytest.approx(answer["ledger"]["total"])
    planted = {gpu: word for gpu, word in key["faults"].items() if word != "ok"}
    assert {f["gpu"]: f["verdict"] for f in answer["trust"]["findings"]} == planted


def test_a_store_gives_the_same_answer_and_keeps_it(fleet, tmp_path):
    words, _ = given(fleet, "exposition")
    first = asked(*words, "--store", str(tmp_path / "store"))
    again = asked(str(tmp_path / "store"))
    assert {k: again[k] for k in ("ofu", "gpu_hours", "ledger", "tree")} == {k: first[k] for k in ("ofu", "gpu_hours", "ledger", "tree")}
    # taking the same in again changes nothing
    third = asked(*words, "--store", str(tmp_path / "store"))
    assert third["gpu_hours"] == first["gpu_hours"]
    assert third["ofu"] == pytest.approx(first["ofu"])


def test_cycle_counters_make_ofu_exact_and_true(tmp_path):
    run("simulate", "--gpus", "16", "--hours", "2", "--format", "parquet", "--out", str(tmp_path / "f"), "--counters", "--faults", "none")
    key = json.loads((tmp_path / "f" / "answers.json").read_text())
    answer = asked(str(tmp_path / "f" / "samples"), "--jobs", str(tmp_path / "f" / "jobs.csv"))
    assert answer["method"] == "exact"
    # the truth, not the sampled approximation of it; only the first sample of each GPU has no growth to count
    assert answer["ofu"] == pytest.approx(key["fleet"]["ofu"], abs=2e-4)
    assert abs(answer["ofu"] - key["fleet"]["ofu"]) < abs(key["fleet"]["sampled_ofu"] - key["fleet"]["ofu"]) + 2e-4


def test_the_page_the_table_and_the_picture_are_written(fleet, tmp_path):
    words, _ = given(fleet, "parquet")
    for name in ("r.html", "r.parquet", "r.svg", "r.json", "r.txt"):
        run("fleet", *words, "--out", str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 500
    import pyarrow.parquet as parquet

    table = parquet.read_table(tmp_path / "r.parquet")
    assert {"key", "ofu", "gpu_hours", "load_balance", "clock"} <= set(table.column_names)
    assert run("fleet", *words, "--out", str(tmp_path / "r.xyz"), code=1) == ""


@pytest.mark.parametrize("by", ["user", "model", "host", "cluster", "gpu", "namespace", "hour"])
def test_every_key_adds_up_to_the_whole(fleet, by):
    words, _ = given(fleet, "parquet")
    answer = asked_once(*words, "--by", by)
    assert sum(g["gpu_hours"] for g in answer["groups"]) == pytest.approx(answer["gpu_hours"])
    assert answer["by"] == by


def test_ofu_of_every_sample_is_a_table(fleet, tmp_path):
    import pyarrow.parquet as parquet

    words, _ = given(fleet, "parquet")
    run("fleet", *words, "--by", "sample", "--out", str(tmp_path / "s.parquet"))
    table = parquet.read_table(tmp_path / "s.parquet", columns=["ofu", "tensor_active", "sm_clock", "tensor_clock"]).drop_null()
    row = table.slice(100, 1).to_pylist()[0]
    assert row["ofu"] == pytest.approx(row["tensor_active"] * row["sm_clock"] / 1830e6)
    assert row["tensor_clock"] == 1830e6
    run("fleet", *words, "--by", "sample", code=1)


def test_python_reads_the_samples_themselves(fleet):
    words, _ = given(fleet, "parquet")
    assert sum(batch.num_rows for batch in ullage.read_samples(words[0])) >= 32 * 3 * 120


def test_python_gives_what_the_command_gives(fleet):
    words, _ = given(fleet, "parquet")
    report = ullage.fleet(words[0], jobs=[words[2]], by="user")
    assert report.ofu == pytest.approx(asked_once(*words, "--by", "user")["ofu"])


def test_a_truncated_gzip_among_good_files_costs_only_itself(fleet, tmp_path):
    words, _ = given(fleet, "exposition")
    folder = tmp_path / "scrapes"
    shutil.copytree(Path(words[0]) / "node0002", folder)
    whole = asked(str(folder), *words[1:])
    page = sorted(path for path in folder.rglob("*") if path.is_file())[5].read_bytes()
    (folder / "cut.prom.gz").write_bytes(gzip.compress(page)[: len(page) // 40])
    (folder / "login.html").write_text("<!DOCTYPE html><html><body>please log in</body></html>")
    answer = json.loads(run("fleet", str(folder), *words[1:], "--json", code=3))  # partial: nobody knows what else it held
    assert whole["ofu"] > 0.1 and answer["ofu"] == pytest.approx(whole["ofu"], abs=2e-3) and answer["complete"] is False
    assert any("cut.prom.gz" in note for note in answer["notes"])
    assert any("login.html" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"<!DOCTYPE html><html>502 Bad Gateway</html>", "HTML"),
        (b"", "is empty"),
        (b"\x00\x01\x02\x03" * 100, "not telemetry"),
        (b"go_goroutines 12\n", "go_goroutines 12"),
    ],
)
def test_what_is_no_telemetry_is_one_clear_error(tmp_path, content, word):
    (tmp_path / "thing").write_bytes(content)
    with pytest.raises(ullage.UllageError) as error:
        ullage.fleet(str(tmp_path / "thing"))
    assert word in str(error.value)
    assert "thing" in str(error.value)


def test_a_place_that_is_not_there_is_one_clear_error():
    with pytest.raises(ullage.UllageError, match="no file or folder 'nowhere'"):
        ullage.fleet("nowhere")


def test_an_empty_window_says_so(fleet):
    words, _ = given(fleet, "parquet")
    with pytest.raises(ullage.UllageError, match="no sample"):
        ullage.fleet(words[0], since=0, until=1000)


def test_where_samples_are_stored_an_empty_window_says_from_when_to_when(fleet, tmp_path):
    words, _ = given(fleet, "parquet")
    store = str(tmp_path / "store")
    first, last = (ullage.fleet(words[0], store=store).window[end] for end in (0, 1))
    for asked in (lambda: ullage.fleet(store, since=0, until=1000), lambda: ullage.watch(store, since=0, until=1000)):
        with pytest.raises(NoSampleError) as error:
            asked()
        between = re.search(r"the samples lie between (\S+) and (\S+);", error.value.hint)
        started, ended = (datetime.fromisoformat(text).timestamp() * 1000 for text in between.groups())
        assert first <= started <= first + 600_000 and last - 600_000 <= ended <= last + 600_000
    with pytest.raises(NoSampleError, match="there is nothing to compare with in"):
        ullage.fleet(store, against="3650d")
