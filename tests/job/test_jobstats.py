"""Jobstats' summaries: written and read back, as an independent reading of their format has them, and whatever a comment holds."""

from __future__ import annotations

import base64
import gzip
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ullage
from tests.command_line import ask
from tests.job import slurm_records
from tests.job.slurm_records import Submitted
from tests.seeds import some
from ullage.errors import UllageError
from ullage.reports.job.job import JobReport
from ullage.sources.jobs.jobstats import (
    MOST_JSON,
    MOST_TEXT,
    JobstatsGpu,
    JobstatsNode,
    JobstatsSummary,
    is_summary,
    read_summary,
    write_summary,
)

T = 1_786_320_000  # 2026-08-10T00:00:00Z


def as_jobstats_writes(told: Any) -> str:
    """Return what Jobstats stores, by the description of its format alone."""
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(told, separators=(",", ":")).encode("ascii"), mtime=0)).decode("ascii")


def as_jobstats_reads(comment: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(comment[4:])))


def drawn(draw: random.Random) -> JobstatsSummary:
    nodes = []
    for number in range(draw.randint(1, 4)):
        gpus = tuple(
            JobstatsGpu(str(n), draw.choice([None, draw.randint(0, 1000) / 10 / 100]), draw.choice([None, draw.randrange(10**11)]), 8e10)
            for n in sorted(draw.sample(range(8), draw.randint(0, 8)))
        )
        cpus, seconds = draw.choice([(None, None), (draw.randint(1, 128), draw.randint(0, 10**7) / 10)])
        nodes.append(JobstatsNode(f"n{number}", cpus, seconds, draw.choice([None, draw.randrange(10**12)]), 10**12, gpus))
    return JobstatsSummary(draw.randint(0, 10**6), draw.choice([None, 0, 8]), tuple(nodes), draw.choice([{}, {"ofu": 0.123}]))


@pytest.mark.parametrize("seed", some(range(3000), 100))
def test_what_is_written_is_read_back(seed: int) -> None:
    summary = drawn(random.Random(seed))
    comment = write_summary(summary)
    assert read_summary(comment) == summary and comment == write_summary(summary) and is_summary(comment)
    told = as_jobstats_reads(comment)
    assert told["total_time"] == summary.seconds and [*told["nodes"]] == [node.name for node in summary.nodes]
    for node in summary.nodes:
        own = told["nodes"][node.name]
        assert (own.get("cpus"), own.get("total_time")) == (node.cpus, node.cpu_seconds)
        shares = {gpu.number: round(gpu.utilization * 100, 1) for gpu in node.gpus if gpu.utilization is not None}
        assert own.get("gpu_utilization", {}) == shares


def test_what_jobstats_writes_is_read() -> None:
    gpus = {"gpu_total_memory": {"1": 85_899_345_920}, "gpu_used_memory": {"1": 83_314_868_224}, "gpu_utilization": {"1": 98.6}}
    node = {"cpus": 12, "total_memory": 137_438_953_472, "total_time": 57_620.8, "used_memory": 84_683_702_272, **gpus}
    found = read_summary(as_jobstats_writes({"gpus": 1, "nodes": {"g1": node}, "total_time": 50_944, "later": {"key": 1}}))
    assert found is not None and found.gpus == 1 and found.gpu_utilization == pytest.approx(0.986)
    assert found.nodes[0].gpus == (JobstatsGpu("1", 0.986, 83_314_868_224, 85_899_345_920),)
    assert found.cpu_efficiency == pytest.approx(57_620.8 / (12 * 50_944))  # CPU seconds over cores x time
    none = read_summary(as_jobstats_writes({"nodes": {"c1": {"cpus": 1}}, "total_time": 60, "gpus": False}))  # as early versions have it
    assert none is not None and none.gpus == 0 and none.cpu_efficiency is None and none.gpu_utilization is None
    rounded = read_summary(as_jobstats_writes({"nodes": {"n": {"gpu_utilization": {"0": 100.5}}}, "total_time": 1, "gpus": 10**7}))
    assert rounded is not None and rounded.gpu_utilization == pytest.approx(1.005) and rounded.gpus == 10**7
    assert read_summary("JS1:Short") is None and read_summary(" JS1:None\n") is None and write_summary(None) == "JS1:None"


@pytest.mark.parametrize(
    ("comment", "why"),
    [
        ("", "does not begin with JS1:"),
        ("please requeue", "does not begin with JS1:"),
        ("js1:h4siac", "made lower case"),
        ("JS1:", "cut off"),
        ("JS1:!!!!", "not base64"),
        ("JS1:AAAA", "not base64 of gzipped JSON"),
        ("JS1:\u0663\u0663\u0663\u0663", "not base64"),
        (as_jobstats_writes([1]), "none of a summary"),
        (as_jobstats_writes({"nodes": {}}), "none of a summary"),
        (as_jobstats_writes({"nodes": {"n": 7}, "total_time": 1}), "none of a summary"),
        (as_jobstats_writes({"nodes": {"n": {"cpus": "7"}}, "total_time": 1}), "none of a summary"),
        (as_jobstats_writes({"nodes": {"n": {"gpu_utilization": {"0": 100.51}}}, "total_time": 1}), "gpu_utilization of GPU 0 is 100.51"),
        (as_jobstats_writes({"nodes": {"n": {"gpu_utilization": {"\x1b[2J": -1}}}, "total_time": 1}), r"GPU \\x1b[2J is -1"),
        (as_jobstats_writes({"nodes": {"n": {"used_memory": -5}}, "total_time": 1}), "used_memory is -5"),
        (as_jobstats_writes({"nodes": {}, "total_time": 1e300}), "total_time is 1e+300"),
        (as_jobstats_writes({"nodes": {}, "total_time": 1, "gpus": 10**7 + 1}), "gpus is 1e+07"),
        ("JS1:" + "A" * (MOST_TEXT + 1), "more than 1,048,576 characters"),
        ("JS1:" + base64.b64encode(gzip.compress(b"[" * 100_000, mtime=0)).decode(), "none of a summary"),
        (as_jobstats_writes({"nodes": {}, "total_time": 1})[:-13], "not base64"),
        (as_jobstats_writes({"nodes": {}, "total_time": 1})[:-16], "cut off"),
    ],
)
def test_what_is_no_summary_says_why(comment: str, why: str) -> None:
    with pytest.raises(UllageError) as refused:
        read_summary(comment)
    assert why.replace("\\\\", "\\") in str(refused.value)


def test_a_bomb_is_given_up_before_it_is_unpacked() -> None:
    bomb = "JS1:" + base64.b64encode(gzip.compress(b" " * (6 * MOST_JSON), mtime=0)).decode()  # 96 MB in 130 kB
    assert len(bomb) < MOST_TEXT
    tracemalloc.start()
    with pytest.raises(UllageError, match="unpacks to more than 16 MB"):
        read_summary(bomb)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 * MOST_JSON
    fits = b'{"nodes":{},"total_time":1' + b" " * (MOST_JSON - 27) + b"}"
    assert len(fits) == MOST_JSON
    assert read_summary("JS1:" + base64.b64encode(gzip.compress(fits, mtime=0)).decode()) == JobstatsSummary(1, None, ())


@given(st.text(max_size=200) | st.binary(max_size=300).map(lambda data: base64.b64encode(gzip.compress(data, mtime=0)).decode()))
@example(base64.b64encode(gzip.compress(b'{"nodes":{"n":{"gpu_utilization":{"0":1e400}}},"total_time":1}', mtime=0)).decode())
@example(base64.b64encode(gzip.compress(b'{"nodes":{},"total_time":NaN}', mtime=0)).decode())
def test_no_comment_does_more_than_raise_our_error(text: str) -> None:
    try:
        read_summary(f"JS1:{text}")
    except UllageError as error:
        assert error.problem.startswith("the Jobstats summary can't be read: ")


# --- in a job's report ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half an hour of node n1 with two H100s: GPU 0 half busy, with 20 GB in use at most, GPU 1 idle; and Slurm's record of job 7."""
    folder = tmp_path_factory.mktemp("jobstats")
    rows = ["time,host,index,gpu,model,tensor_active,sm_clock,gpu_util,memory_used"]
    for n in range(1, 61):
        rows.append(f"{T + 30 * n},n1,0,GPU-0,NVIDIA H100 80GB HBM3,{0.2 + n % 7 / 1000},1.3725e9,0.5,{(10 + n // 6) * 1e9}")
        rows.append(f"{T + 30 * n},n1,1,GPU-1,NVIDIA H100 80GB HBM3,0,1.3725e9,0,1e9")
    (folder / "samples.csv").write_text("\n".join(rows) + "\n")
    told = {
        "nodes": {"n1": {"cpus": 4, "total_time": 3600, "used_memory": 10**9, "total_memory": 4 * 10**9}},
        "total_time": 1800,
        "gpus": 2,
    }
    job = Submitted(raw=7, start=T, end=T + 1800, comment=as_jobstats_writes(told))
    (folder / "sacct.txt").write_text(slurm_records.text([job]))
    (folder / "damaged.txt").write_text(slurm_records.text([Submitted(raw=7, start=T, end=T + 1800, comment="js1:h4s")]))
    return folder


def test_a_job_s_report_has_the_cpus_and_gives_back_what_it_saw(folder: Path, tmp_path: Path) -> None:
    words = ("job", "7", folder / "samples.csv", "--jobs", folder / "sacct.txt")
    said = ask(*words)
    assert "50 % of their time, 1.000 GB of 4.000 GB of host memory, by Jobstats" in said.out  # 3,600 s of 4 x 1,800
    assert ask(*words, "--json").json["jobstats"]["cpu_efficiency"] == 0.5
    assert ask(*words, "--out", tmp_path / "seven.js1").code == 0
    written = (tmp_path / "seven.js1").read_text()
    node = as_jobstats_reads(written.strip())["nodes"]["n1"]
    assert node["gpu_utilization"] == {"0": 50.0, "1": 0} and node["gpu_used_memory"] == {"0": 20e9, "1": 1e9}
    assert (node["cpus"], node["total_time"], node["gpu_total_memory"]) == (4, 3600, {"0": 80e9, "1": 80e9})
    told = as_jobstats_reads(written.strip())
    assert (told["gpus"], told["total_time"]) == (2, 1800)
    # GPU 0 at 0.203 x 1,372.5 / 1,830, GPU 1 idle throughout: so is half of what was held
    assert told["ullage"]["ofu"] == pytest.approx(0.0761, abs=0.001) and told["ullage"]["gpu_hours"] == 1.0


def test_a_damaged_summary_is_a_note(folder: Path) -> None:
    report = ullage.job("7", folder / "samples.csv", jobs=[folder / "damaged.txt"])
    assert isinstance(report, JobReport) and report.jobstats is None
    assert report.notes[-1].startswith("the Jobstats summary can't be read: its letters were made lower case; sacctmgr of Slurm 22.05")
