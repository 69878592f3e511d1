"""What `ullage job --setup` prints, tried: on a real Slurm with its prolog, epilog and accounting, and by Prometheus' own checks."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import ullage
from tests.command_line import ask
from tests.documents import breaches
from tests.job.slurm_cluster import Cluster, cluster, why_not
from ullage.job_names import plain_name
from ullage.problems import Problems
from ullage.reports.job.job import JobReport
from ullage.reports.job.setup import JobSetup, Scheduler, job_setup
from ullage.sources.jobs.job import read_jobs
from ullage.sources.jobs.jobstats import read_summary
from ullage.sources.jobs.slurm_job import slurm_jobs

OFU = (0.1, 0.2, 0.3, 0.4)  # that each GPU of the host has all the time
FIELDS = "JobID,JobIDRaw,User,Account,Cluster,JobName,Partition,NodeList,AllocTRES,Submit,Start,End,State,ExitCode,AdminComment"


@pytest.mark.parametrize("scheduler", ["slurm", "kubernetes"])
def test_a_setup_has_every_form(scheduler: Scheduler) -> None:
    said = ask("job", "--setup", scheduler)
    setup = ullage.job(setup=scheduler)
    assert isinstance(setup, JobSetup) and said.code == 0 and said.out == str(setup)
    assert all(line in said.out for file in setup.files for line in file.text.splitlines()) and setup.query in said.out
    told = ask("job", "--setup", scheduler, "--json").json
    assert breaches(told) == [] and [file["text"] for file in told["files"]] == [file.text for file in setup.files]


def test_a_job_and_a_setup_are_two_questions() -> None:
    assert ask("job").code == 2 and ask("job", "4711", "store", "--setup", "slurm").code == 2


def test_scripts_are_shell() -> None:
    for file in job_setup("slurm").files:
        assert file.executable == file.path.endswith(".sh") == file.text.startswith("#!")
        if file.executable:
            subprocess.run(["bash", "-n"], input=file.text, text=True, check=True)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")
def test_prometheus_takes_the_rules_and_the_queries(tmp_path: Path) -> None:
    scrape = next(file.text for file in job_setup("kubernetes").files if file.path == "prometheus.yml")
    (tmp_path / "prometheus.yml").write_text(scrape)
    rules = "".join(f"  - record: shown:{name}\n    expr: '{job_setup(name).query}'\n" for name in ("slurm", "kubernetes"))
    (tmp_path / "rules.yml").write_text(f"groups:\n- name: shown\n  rules:\n{rules}")
    subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], check=True, capture_output=True)
    subprocess.run(["promtool", "check", "rules", tmp_path / "rules.yml"], check=True, capture_output=True)


# --- a real Slurm -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """What a day at the cluster left: a job with two GPUs, an array of three, a job that failed, one without GPUs."""

    cluster: Cluster
    pair: str
    array: str
    failed: str
    plain: str
    held: dict[str, str]  # the mapping folder while the pair ran
    samples: Path

    @property
    def log(self) -> Path:
        return self.cluster.folder / "log" / f"{self.cluster.host}.csv"


def samples_of(host: str, start: int, end: int) -> str:
    """Return a table of the host's four GPUs, a reading a second: each has its own OFU (at the tensor clock of an H100)."""
    lines = ["time,host,index,gpu,model,tensor_active,sm_clock,gpu_util"]
    for now in range(start, end):
        for index, ofu in enumerate(OFU):
            wobble = (now * 7 + index) % 5 / 10_000
            lines.append(f"{now},{host},{index},GPU-{index},NVIDIA H100 80GB HBM3,{ofu + wobble},1.83e9,{0.9 + wobble}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that all may read, as munge wants it: pytest's own is its user's alone."""
    with tempfile.TemporaryDirectory(prefix="ullage-slurm-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def ran(folder: Path) -> Iterator[Ran]:
    if reason := why_not():
        pytest.skip(reason)
    host, start = socket.gethostname().partition(".")[0], int(time.time()) - 30
    samples = folder / "samples.csv"
    samples.write_text(samples_of(host, start, start + 150))
    with cluster(folder, _settings(folder, samples)) as made:
        pair = made.submit("srun -n1 sleep 1.5", "--job-name=pair", "--gres=gpu:2")
        held: dict[str, str] = {}

        def seen() -> bool:
            held.update({path.name: text for path in (folder / "gpus").glob("[0-9]*") if (text := path.read_text())})
            return len(held) >= 2

        made.wait_for("mapping of the pair", seen)
        array = made.submit("sleep 1; exit $SLURM_ARRAY_TASK_ID", "--job-name=arr", "--array=0-2", "--gres=gpu:1")
        failed = made.submit("exit 3", "--job-name=a|b", "--gres=gpu:1")
        plain = made.submit("true", "--job-name=plain")
        made.wait_for("end of all jobs", lambda: not made.ask("squeue", "-h").strip())
        made.wait_for("accounting", lambda: _accounted(made))
        log = folder / "log" / f"{host}.csv"
        made.wait_for("log of the epilogs", lambda: log.exists() and log.read_text().count("\n") == 6)
        yield Ran(made, pair, array, failed, plain, held, samples)


def _settings(folder: Path, samples: Path) -> str:
    """Write the printed scripts as they are, and return the lines of slurm.conf; each script is called with this test's places."""
    paths = {"ULLAGE_GPUS": "gpus", "ULLAGE_STARTED": "started", "ULLAGE_LOG": "log", "ULLAGE_REPORTS": "reports"}
    places = "".join(f"export {name}={folder / place}\n" for name, place in paths.items())
    places += f"export ULLAGE_SOURCE={samples} ULLAGE_WAIT=1 ULLAGE_SUMMARY_LOG={folder}/summary.log SLURM_CONF={folder}/slurm.conf\n"
    places += f"export PATH={Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin HOME={folder} LANG=C.UTF-8\n"
    setup = job_setup("slurm")
    for file in setup.files:
        if file.executable:
            script, caller = folder / Path(file.path).name, folder / f"call-{Path(file.path).name}"
            script.write_text(file.text)
            script.chmod(0o755)
            only = '[ "$SLURM_JOB_NAME" = pair ] || exit 0\n' if "summary" in script.name else ""  # a summary is a second of Python
            caller.write_text(f"#!/bin/bash\n{only}{places}exec {script}\n")
            caller.chmod(0o755)
    printed = next(file.text for file in setup.files if file.path.endswith("slurm.conf"))
    own = [line for line in printed.splitlines() if not line.startswith("AccountingStorageTRES")]  # which the cluster has
    return "\n".join(own).replace("/etc/slurm/", f"{folder}/call-") + "\n"


def _accounted(made: Cluster) -> bool:
    states = made.ask("sacct", "-a", "-X", "-n", "-P", "-o", "State,End").split()
    return len(states) == 6 and not any("RUNNING" in one or "PENDING" in one or "Unknown" in one for one in states)


def records(ran: Ran, form: str) -> Path:
    path = ran.cluster.folder / f"sacct-{form}"
    if not path.exists():
        words = ["--json"] if form == "json" else ["--parsable2", "--format", FIELDS]
        path.write_text(ran.cluster.ask("sacct", "-a", *words))
    return path


def test_the_prolog_writes_the_mapping_and_the_epilog_clears_it(ran: Ran) -> None:
    assert set(ran.held.values()) == {f"{ran.pair}\n"} and len(ran.held) == 2
    left = [path.name for path in (ran.cluster.folder / "gpus").iterdir()]
    assert left == [] and [path.name for path in (ran.cluster.folder / "started").iterdir()] == [".lock"]


def test_the_log_says_who_held_which_gpu(ran: Ran) -> None:
    held = read_jobs(str(ran.log), Problems()).to_pylist()
    by_job = {job: sorted(row["index"] for row in held if row["job"] == job) for job in {row["job"] for row in held}}
    assert by_job[ran.pair] == sorted(int(name) for name in ran.held) and len(by_job) == 5 and ran.plain not in by_job
    assert all(row["cluster"] == "fea" and row["user"] == "root" and row["host"] == ran.cluster.host for row in held)
    assert all(row["start"] <= row["end"] for row in held)


@pytest.mark.parametrize("form", ["text", "json"])
def test_accounting_is_read_in_both_forms(ran: Ran, form: str) -> None:
    problems = Problems()
    held = read_jobs(str(records(ran, form)), problems).to_pylist()
    assert {plain_name(row["job"]): row["gpus"] for row in held}[ran.pair] == 2
    assert sorted(row["state"] for row in held) == ["COMPLETED", "COMPLETED", "FAILED", "FAILED", "FAILED"]  # task 0 ends with 0
    assert any("jobs without GPUs" in line for line in problems.lines())
    tasks = slurm_jobs(str(records(ran, form)), ran.array, problems)
    assert sorted(one.shown for one in tasks) == [f"{ran.array}_{n}" for n in range(3)]
    assert all(step.name.startswith(f"{one.shown}.") for one in tasks for step in one.steps) and all(one.steps for one in tasks)
    assert [one.name for one in slurm_jobs(str(records(ran, form)), ran.pair, problems)[0].steps] == [f"{ran.pair}.batch", f"{ran.pair}.0"]


def test_reports_are_of_the_gpus_that_each_job_held(ran: Ran) -> None:
    words = {"jobs": [ran.log, records(ran, "text")]}
    held = {row["job"]: [] for row in read_jobs(str(ran.log), Problems()).to_pylist()}  # type: dict[str, list[int]]
    for row in read_jobs(str(ran.log), Problems()).to_pylist():
        held[row["job"]].append(row["index"])
    pair = ullage.job(ran.pair, ran.samples, **words)
    assert isinstance(pair, JobReport)
    assert [gpu.index for gpu in pair.gpus] == sorted(held[ran.pair]) and pair.user == "root" and pair.name == "pair"
    for gpu in pair.gpus:
        assert gpu.ofu == pytest.approx(OFU[gpu.index or 0], abs=0.001)
    task = ullage.job(f"{ran.array}_1", ran.samples, **words)
    assert isinstance(task, JobReport) and task.state == "FAILED" and task.slurm[0].exit_code == 1
    assert task.fleet.ofu == pytest.approx(OFU[held[task.jobs[0].name][0]], abs=0.001)
    whole = ullage.job(ran.array, ran.samples, **words)
    assert isinstance(whole, JobReport) and len(whole.jobs) == 3 and whole.fleet.gpu_hours > task.fleet.gpu_hours


def test_the_summary_is_kept_and_stored(ran: Ran) -> None:
    reports = ran.cluster.folder / "reports"

    def stored() -> str:
        return ran.cluster.ask("sacct", "-X", "-n", "-P", "-j", ran.pair, "-o", "AdminComment").strip()

    ran.cluster.wait_for("summary in the accounting", lambda: bool(stored()))
    comment = (reports / f"{ran.pair}.js1").read_text().strip()
    summary = read_summary(comment)
    assert summary is not None and summary.gpus == 2 and [gpu.number for gpu in summary.nodes[0].gpus] == sorted(ran.held)
    assert f"Job {ran.pair} (pair)" in (reports / f"{ran.pair}.html").read_text()
    # sacctmgr of Slurm 22.05 makes the letters lower case, later ones keep them
    assert stored() in (comment, comment.lower())
