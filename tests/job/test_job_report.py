"""A job's report: its numbers are the fleet's for it, its GPUs are those of a slow sum over its samples, its words fit a terminal."""

from __future__ import annotations

import email
import email.policy
import json
import re
from collections import defaultdict
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import ullage
from tests.command_line import ask
from tests.documents import breaches
from tests.fleet.sample_reports import HOSTILE
from tests.fleet.servers import scripted
from tests.fleet.test_partial import Server, broken_off
from tests.job import slurm_records
from tests.job.slurm_records import Step, Submitted
from tests.seeds import some
from ullage.errors import UllageError
from ullage.job_names import plain_name, separate_names
from ullage.render.job import FORMS, more_forms, record, view
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.job.devices import GpuOfJob, places_in_words
from ullage.reports.job.job import JobReport, job_report, recorded_hours
from ullage.simulate.fleet import Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.sources.jobs.record import Record
from ullage.store.reading import connection
from ullage.sums.windows import settle
from ullage.views.files import content
from ullage.views.view import Finding, FindingPlace

HOUR = 3_600_000
T = 1_786_320_000  # 2026-08-10T00:00:00Z


def simulation_of(seed: int, folder: Path, **words: Any) -> tuple[Any, pa.Table, pa.Table]:
    """Return a fleet's samples as Ibis and as Arrow, and its job records."""
    simulation = simulated(Specification(gpus=16, hours=0.5, seed=seed, **words))
    table = settle(pa.Table.from_batches([*simulation.batches()]))
    parquet.write_table(table, folder / "samples.parquet")
    return connection().read_parquet(folder / "samples.parquet"), table, simulation.jobs()


@pytest.mark.parametrize("seed", some(range(200), 1))
def test_its_numbers_are_those_of_the_fleets_report_for_it(seed: int, tmp_path: Path) -> None:
    samples, _, jobs = simulation_of(seed, tmp_path, faults=("all",), changes=("all",) if seed % 2 else ())
    question = FleetRequest(by="job", prices={"": 2.0})
    whole = fleet(samples, jobs, question)
    names = [row.key for row in whole.groups if not row.key.startswith("no ") and "," not in row.key and "/" not in row.key]
    for name in names[: 4 if seed else 2]:
        part = fleet(samples, jobs, FleetRequest(by="job", prices={"": 2.0}, job=(name,)))
        report = job_report(samples, jobs, name, question)
        assert report.fleet.groups == part.groups and report.fleet.ofu == part.ofu and report.fleet.tree == part.tree
        assert report.fleet.energy == part.energy and report.fleet.roofs == part.roofs and report.fleet.ofu_bounds == part.ofu_bounds
        assert report.fleet.course == part.course and report.fleet.doubtful_series == part.doubtful_series
        about = [one for one in whole.findings if one.where.job == name]
        found = {(one.kind, one.where, one.gpu_hours) for one in report.findings}
        assert {(one.kind, one.where, one.gpu_hours) for one in about} <= found
        assert sum(gpu.gpu_hours for gpu in report.gpus) == pytest.approx(report.fleet.gpu_hours)


def slow_sums(table: pa.Table, job: str) -> dict[tuple[Any, Any], dict[str, float]]:
    """Return the sums of each device of a job, a sample at a time: the reference."""
    found: dict[tuple[Any, Any], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    columns = ("job", "gpu", "mig", "span_ms", "gpu_util", "sm_active", "power", "memory_used")
    for row in table.select(columns).to_pylist():
        if not row["job"] or job not in [plain_name(name) for name in separate_names(row["job"])]:
            continue
        sums = found[row["gpu"], row["mig"]]
        sums["span"] += row["span_ms"]
        sums["memory"] = max(sums["memory"], row["memory_used"] or 0.0)
        for gauge in ("gpu_util", "sm_active", "power"):
            if row[gauge] is not None:
                sums[gauge] += row[gauge] * row["span_ms"]
                sums[f"{gauge}_span"] += row["span_ms"]
    return found


@pytest.mark.parametrize("seed", some(range(300), 1))
def test_its_gpus_are_those_of_a_slow_sum(seed: int, tmp_path: Path) -> None:
    samples, table, jobs = simulation_of(seed, tmp_path, faults=("none",))
    word = next(name for name in table["job"].cast(pa.string()).to_pylist() if name)
    job = plain_name(separate_names(word)[0])
    report = job_report(samples, jobs, job, FleetRequest())
    expected = slow_sums(table, job)
    assert {(gpu.gpu, gpu.mig) for gpu in report.gpus} == expected.keys()
    for gpu in report.gpus:
        sums = expected[gpu.gpu, gpu.mig]
        assert gpu.gpu_hours == pytest.approx(sums["span"] / HOUR, abs=1e-9)
        assert gpu.gpu_util == pytest.approx(sums["gpu_util"] / sums["gpu_util_span"])
        assert gpu.sm_active == pytest.approx(sums["sm_active"] / sums["sm_active_span"])
        assert gpu.power == pytest.approx(sums["power"] / sums["power_span"])
        assert gpu.memory == pytest.approx(sums["memory"])
        assert gpu.verdict == "ok"
    # where all that is observed is trusted and known, the job's OFU is the mean of its GPUs'
    weighed = sum((gpu.ofu or 0.0) * gpu.gpu_hours for gpu in report.gpus) / sum(gpu.gpu_hours for gpu in report.gpus)
    assert report.fleet.ofu == pytest.approx(weighed, rel=0.02)


def test_recorded_hours_are_gpus_times_time_and_none_where_one_record_does_not_say() -> None:
    one = Record("1", host="a", start=0, end=2 * HOUR, gpus=4)
    assert recorded_hours([one, Record("1", host="b", start=0, end=2 * HOUR, gpus=4)]) == 8.0  # a row a host, the job's GPUs once
    assert recorded_hours([one, Record("2", start=0, end=HOUR, gpus=1)]) == 9.0
    assert recorded_hours([one, Record("2", start=0, end=None, gpus=1)]) is None
    assert recorded_hours([]) is None


def gpu(host: str | None, index: int | None, mig: str | None = None) -> GpuOfJob:
    return GpuOfJob(host, index, f"{host}{index}", mig, None, 1.0, 0.0, None, None, None, None, None, None)


def test_places_are_said_in_few_words() -> None:
    assert places_in_words([gpu("n1", 0), gpu("n1", 2), gpu("n1", 3)]) == "n1: GPU 0,2-3"
    assert places_in_words([gpu(f"n{n}", 0) for n in range(7)]) == "n0, n1, n2, n3 and 3 more hosts: GPU 0"
    assert places_in_words([gpu("n1", 0, "1g.10gb/7"), gpu("n2", None)]) == "n1: GPU 0 instance 1g.10gb/7; n2"
    assert places_in_words([gpu(None, None)]) == "no host"


# --- from servers and scrapes ---


def test_a_prometheus_is_asked_for_the_time_of_the_job_alone(tmp_path: Path) -> None:
    # the server has two H100s of n1 at OFU 0.3 from 00:00 to 04:00; the job held both from 01:00 to 01:30
    (tmp_path / "sacct.txt").write_text(slurm_records.text([Submitted(raw=7, start=T + 3600, end=T + 5400)]))
    server, spans = Server(1000, broken_off), list[tuple[float, float]]()

    def listening(handler: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        if "time" in query:
            end, length = float(query["time"][0]), query["query"][0].split("[")[1].removesuffix("ms]")
            spans.append((end - float(length) / 1000, end))
        server(handler)

    with scripted(listening) as url:
        report = ullage.job("7", f"prometheus+{url}", jobs=[tmp_path / "sacct.txt"])
    assert isinstance(report, JobReport) and report.fleet.ofu == pytest.approx(0.3) and report.fleet.gpu_hours == pytest.approx(1.0)
    assert report.window == ((T + 3600) * 1000, (T + 5400) * 1000) and report.recorded_hours == 1.0
    # ten minutes more on either side, which reading needs
    assert min(start for start, _ in spans) >= T + 3600 - 630 and max(end for _, end in spans) <= T + 5400 + 630


def test_scrapes_with_the_records_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "scrapes").mkdir()
    for n in range(1, 21):
        labels = 'gpu="0",UUID="GPU-0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'
        values = {"PROF_PIPE_TENSOR_ACTIVE": 0.4 + n / 10_000, "DEV_SM_CLOCK": 1372.5, "DEV_GPU_UTIL": 97}
        text = "".join(f"DCGM_FI_{name}{{{labels}}} {value}\n" for name, value in values.items())
        (tmp_path / "scrapes" / f"{T + 30 * n}.prom").write_text(text)
    job = Submitted(raw=7, start=T, end=T + 300, gpus=1)
    (tmp_path / "sacct.json").write_text(slurm_records.as_json([job], "23.11"))
    report = ullage.job("7", tmp_path / "scrapes", jobs=[tmp_path / "sacct.json"])
    assert isinstance(report, JobReport) and [gpu.place for gpu in report.gpus] == ["n1 GPU 0"]
    assert report.fleet.gpu_hours == pytest.approx(300 / 3600) and report.fleet.ofu == pytest.approx(0.3, abs=0.001)
    assert report.state == "COMPLETED" and report.name == "train"


# --- as a command -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of node n1 with two H100s, GPU 0 at OFU 0.3 and GPU 1 at 0.1, and Slurm's records of an array and a job."""
    folder = tmp_path_factory.mktemp("job")
    rows = ["time,host,index,gpu,model,tensor_active,sm_active,gr_active,gpu_util,sm_clock,memory_used,power"]
    for n in range(1, 121):
        for index, level in ((0, 0.4), (1, 0.4 / 3)):
            wobble = (n * 7 + index * 3) % 5 / 1000
            gauges = f"{level + wobble},{level + 0.2 + wobble},{0.9 + wobble},{0.99 - wobble},1.3725e9,{(4 + index) * 1e9},{400 + n % 7}"
            rows.append(f"{T + 30 * n},n1,{index},GPU-{index},NVIDIA H100 80GB HBM3,{gauges}")
    (folder / "samples.csv").write_text("\n".join(rows) + "\n")
    jobs = [
        Submitted(raw=70, start=T, end=T + 1800, array=(69, 1), gpus=2, steps=(Step("batch", T, T + 1800), Step("0", T + 600, T + 1200))),
        Submitted(raw=69, start=T + 1800, end=T + 3600, array=(69, 2), gpus=2, state="FAILED", code=3, submitted=T - 1800),
    ]
    (folder / "sacct.txt").write_text(slurm_records.text(jobs))
    for shape in slurm_records.SHAPES:
        (folder / f"sacct-{shape}.json").write_text(slurm_records.as_json(jobs, shape))
    return folder


_REPORTS: dict[str, JobReport] = {}


def asked(folder: Path, job: str, **words: Any) -> JobReport:
    """Ask about a job; the same question is answered once."""
    key = f"{folder} {job} {words}"
    if key not in _REPORTS:
        report = ullage.job(job, folder / "samples.csv", **({"jobs": [folder / "sacct.txt"]} | words))
        assert isinstance(report, JobReport)
        _REPORTS[key] = report
    return _REPORTS[key]


@pytest.mark.parametrize("records", [f"sacct-{shape}.json" for shape in slurm_records.SHAPES])
def test_an_array_is_all_its_tasks_by_the_json_of_each_version(records: str, folder: Path) -> None:
    whole = asked(folder, "69", jobs=[folder / records])
    assert whole.fleet.gpu_hours == pytest.approx(2.0) and whole.recorded_hours == 2.0
    assert [job.name for job in whole.jobs] == ["69", "70"] and whole.notes[-1] == "these are 2 jobs together: 69_1, 69_2"
    assert whole.state == "COMPLETED, FAILED"


def test_tasks_and_steps(folder: Path) -> None:
    first, second, step = (asked(folder, job) for job in ("69_1", "69_2", "69_1.0"))
    # two GPUs: each task for half an hour, the step for ten minutes
    assert first.fleet.gpu_hours == second.fleet.gpu_hours == pytest.approx(1.0)
    assert step.fleet.gpu_hours == pytest.approx(2 / 6)
    assert second.state == "FAILED" and first.state == "COMPLETED"
    assert first.recorded_hours == 1.0 and step.recorded_hours is None
    assert step.window == ((T + 600) * 1000, (T + 1200) * 1000)
    assert first.fleet.ofu == pytest.approx(0.75 * (0.4 + 0.4 / 3) / 2, rel=0.02)  # 1,372.5 of 1,830 MHz


def test_the_records_say_which_time_is_read(folder: Path) -> None:
    assert asked(folder, "69_1").fleet.window == (T * 1000, (T + 1800) * 1000)
    assert asked(folder, "69_1", since=(T + 600) * 1000).fleet.gpu_hours == pytest.approx(2 / 3)


def test_a_terminal_has_about_fifteen_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    said = ask("job", "69_2", folder / "samples.csv", "--jobs", folder / "sacct.txt", "--price", "2")
    lines = said.out.split("\n\nnote:")[0].rstrip().splitlines()
    findings = lines.index("What to do first"), lines.index(next(line for line in lines if line.startswith("who")))
    assert said.code == 0 and len([line for line in lines[: findings[0]] + lines[findings[1] :] if line]) <= 20  # the longest facts wrap
    text = " ".join(said.out.split())
    assert "Job 69_2 (train): OFU 20.1 % of 1.00 GPU-hours" in text
    assert "ann, account physics, partition main, FAILED (exit code 3)" in text
    assert "2 × NVIDIA H100 80GB HBM3: n1: GPU 0-1" in text
    assert "100 % of the 1.00 in its records; waited 1.00 h in the queue" in text
    assert "OFU from 10.1 % (n1 GPU 1) to 30.1 % (n1 GPU 0); at most 5.000 GB of 80.00 GB of memory in use (n1 GPU 1)" in text
    assert "load balance" in text and "= OFU" in text and "cost 2.00" in text


def test_every_form_says_it(folder: Path, tmp_path: Path) -> None:
    words = ("job", "69_1", folder / "samples.csv", "--jobs", folder / "sacct.txt")
    said = ask(*words, "--json", "--out", tmp_path / "job.html")
    told, report = said.json, asked(folder, "69_1")
    assert breaches(told) == [] and told["schema"] == "ullage.job/1"
    assert (told["job"], told["jobs"], told["user"], told["state"]) == ("69_1", ["70"], "ann", "COMPLETED")
    assert [(gpu["host"], gpu["index"]) for gpu in told["gpus"]] == [("n1", 0), ("n1", 1)]
    assert sum(loss["gpu_hours"] for loss in told["losses"]) == pytest.approx(told["ullage"]["gpu_hours"])
    page = (tmp_path / "job.html").read_text()
    assert "Its GPUs" in page and "GPU-1" in page and "<svg" in page
    made = view(report)
    forms = {
        ending: content(Path(f"job{ending}"), made, lambda: record(report), more_forms(report, made)).decode(errors="replace")
        for ending in FORMS
    }
    assert json.loads(forms[".json"])["ofu"] == told["ofu"] == report.json()["ofu"]
    assert forms[".csv"].splitlines()[1].startswith("n1 GPU 0,GPU-0,") and "ann, account physics" in forms[".md"]
    assert forms[".txt"].startswith("Job 69_1 (train): OFU") and str(report).startswith("Job 69_1 (train): OFU")


def test_a_line_names_three_stragglers_and_a_wait_of_a_minute(folder: Path) -> None:
    report = asked(folder, "69_1")
    slow = [Finding(FindingPlace(host=f"n{n}", index=n), "ann", 1.0 + n, "high", (), "drain it", kind="straggler") for n in range(4)]

    def said(**changes: Any) -> str:
        return " ".join(str(replace(report, **changes)).split())

    assert "stragglers n0 GPU 0, 1.00 GPU-hours; n1 GPU 1, 2.00 GPU-hours; n2 GPU 2, 3.00 GPU-hours; 1 more" in said(findings=slow)
    assert "n2 GPU 2, 3.00 GPU-hours " in said(findings=slow[:3]) and "stragglers none" in said(findings=[])
    start = report.slurm[0].start or 0
    assert "waited 0.017 h in the queue" in said(slurm=(replace(report.slurm[0], submitted=start - 60_000),))
    assert "in the queue" not in said(slurm=(replace(report.slurm[0], submitted=start - 59_999),))


def test_an_e_mail_has_a_text_and_a_page(folder: Path) -> None:
    report = replace(asked(folder, "69_1"), mail_to=("ann@example.org",))
    written = more_forms(report, view(report))[".eml"]()
    assert isinstance(written, bytes) and written == more_forms(report, view(report))[".eml"]()
    message = email.message_from_bytes(written, policy=email.policy.default)
    assert message["Subject"].startswith("Job 69_1 (train): OFU 20.1 % of 1.00 GPU-hours") and message["To"] == "ann@example.org"
    assert message.get_content_type() == "multipart/alternative" and written.isascii()
    assert all(len(line) <= 998 for line in written.split(b"\r\n"))  # RFC 5322, 2.1.1
    text, page = (part.get_content() for part in message.iter_parts())
    assert "= OFU" in text and all(len(line) <= 100 for line in text.splitlines() if "·" not in line and "GPU utilization" not in line)
    assert "load balance" in page and "n1: GPU 0-1" in page and not re.search(r"<(script|svg|img|link)", page)


def test_foreign_names_do_no_harm_in_any_form(folder: Path) -> None:
    plain = asked(folder, "69_1")
    gpus = tuple(replace(gpu, host=HOSTILE, gpu=HOSTILE, model=HOSTILE) for gpu in plain.gpus)
    slurm = tuple(replace(one, account=HOSTILE, partition=HOSTILE) for one in plain.slurm)
    report = replace(plain, asked=HOSTILE, name=HOSTILE, user=HOSTILE, namespace=HOSTILE, state=HOSTILE, gpus=gpus, slurm=slurm)
    made = view(report)
    for ending in (".html", ".txt", ".md", ".eml", ".csv"):
        written = content(Path(f"job{ending}"), made, lambda: record(report), more_forms(report, made)).decode(errors="replace")
        assert not any(sign in written for sign in ("\x1b", "\x00", "\u202e"))
        if ending == ".eml":
            written = email.message_from_string(written, policy=email.policy.default).get_body(("html",)).get_content()
        assert ending not in (".html", ".eml") or "<script>alert" not in written


@pytest.mark.parametrize("address", ["ann", "ann@", "@x", "a@b\nBcc: all@example.org", "a b@c", "", "ann@exämple.org", "a@b, c@d"])
def test_what_is_no_address_is_refused_before_anything_is_read(address: str) -> None:
    with pytest.raises(UllageError, match="is not an e-mail address"):
        ullage.job("1", "nowhere", mail_to=[address])


def test_what_is_not_there_is_one_clear_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UllageError, match=r"no sample of .*samples\.csv is of a job '6'"):
        asked(folder, "6")
    with pytest.raises(UllageError, match=r"no record says when step 69_2\.0 ran"):
        asked(folder, "69_2.0")
    with pytest.raises(UllageError, match=r"no sample of .*samples\.csv names a job"):
        asked(folder, "69", jobs=())
    with pytest.raises(UllageError, match="no telemetry is named"):
        ullage.job("69")
    monkeypatch.setenv("ULLAGE_SOURCE", str(folder / "samples.csv"))
    assert ask("job", "69", "--jobs", folder / "sacct.txt").code == 0


def test_one_id_of_two_clusters(folder: Path, tmp_path: Path) -> None:
    text = (folder / "samples.csv").read_text()
    head, *rows = text.splitlines()
    both = [f"{head},cluster,job", *(f"{row},east,4711" for row in rows)]
    both += [f"{row.replace('GPU-', 'GPU-w')},west,4711" for row in rows[::2]]  # GPU 0 alone
    (tmp_path / "both.csv").write_text("\n".join(both) + "\n")
    with pytest.raises(UllageError, match="several clusters have a job '4711': east, west"):
        ullage.job("4711", tmp_path / "both.csv")
    east, west = (ullage.job(f"{name}/4711", tmp_path / "both.csv") for name in ("east", "west"))
    assert (len(east.gpus), len(west.gpus)) == (2, 1)
    assert east.json()["cluster"] == "east" and west.fleet.ofu == pytest.approx(0.303, abs=0.002)
