"""What Slurm's records say of one job: the same from text and from the JSON of each version, whatever the id names."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.job import slurm_records
from tests.job.slurm_records import SHAPES, Submitted
from tests.seeds import some
from ullage.problems import Problems
from ullage.reports.job.job import recorded_window
from ullage.sources.jobs.slurm_job import SlurmJob, SlurmStep, slurm_jobs


def expected(job: Submitted, *, code: int | None) -> SlurmJob:
    return SlurmJob(
        job=str(job.raw),
        shown=job.shown,
        cluster=job.cluster,
        account="physics",
        partition="main",
        submitted=job.submitted * 1000,
        start=job.start * 1000,
        end=job.end * 1000,
        state=job.state,
        exit_code=code,
        comment=job.comment or None,
        steps=tuple(SlurmStep(f"{job.shown}.{step.name}", step.start * 1000, step.end * 1000) for step in job.steps),
    )


@pytest.mark.parametrize("seed", some(range(300), 20))
def test_text_and_the_json_of_each_version_say_the_same(seed: int, tmp_path: Path) -> None:
    jobs = slurm_records.drawn(random.Random(seed))
    forms = {"text": slurm_records.text(jobs)} | {shape: slurm_records.as_json(jobs, shape) for shape in SHAPES}
    for name, form in forms.items():
        (tmp_path / name).write_text(form)
    for wanted in {str(job.raw) for job in jobs} | {job.shown for job in jobs}:
        number = wanted.split("_")[0].split("+")[0]
        meant = [job for job in jobs if number in (str(job.raw), job.shown.split("_")[0].split("+")[0])]
        for name in forms:
            problems = Problems()
            # the JSON of 22.05 has no exit code of a job that failed, and no version means 0 by it
            unknown = {job.shown for job in meant if job.state == "FAILED" and (name == "22.05" or (name != "text" and job.code == 0))}
            told = [expected(job, code=None if job.shown in unknown else job.code) for job in meant]
            assert slurm_jobs(str(tmp_path / name), wanted, problems) == told
            assert not problems.lines()


def test_other_files_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job,user\n4711,ann\n")
    (tmp_path / "empty").write_text("")
    for name in ("jobs.csv", "empty", "nowhere"):
        assert slurm_jobs(str(tmp_path / name), "4711", Problems()) == []
    assert slurm_jobs(str(tmp_path / "jobs.csv"), "ml/train", Problems()) == []


@pytest.mark.parametrize("seed", some(range(400), 40))
def test_broken_records_are_passed_over(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    jobs = slurm_records.drawn(draw)
    form = draw.choice([slurm_records.text(jobs), *(slurm_records.as_json(jobs, shape) for shape in SHAPES)])
    broken = list(form)
    for _ in range(draw.randint(1, 12)):
        broken[draw.randrange(len(broken))] = draw.choice(['"', "|", "{", "}", "\n", "x", "9", "\x00", "[", ":", "null"])
    (tmp_path / "records").write_text("".join(broken))
    from ullage.errors import UllageError

    for job in jobs[:2]:
        try:
            slurm_jobs(str(tmp_path / "records"), job.shown, Problems())
        except UllageError as error:
            assert "records" in error.problem


def test_the_window_is_that_of_all_records_of_the_id(tmp_path: Path) -> None:
    tasks = [Submitted(raw=8, array=(7, 0), start=1_786_320_000, end=1_786_321_000), Submitted(raw=7, array=(7, 1), end=1_786_329_000)]
    (tmp_path / "sacct.txt").write_text(slurm_records.text(tasks))
    found = slurm_jobs(str(tmp_path / "sacct.txt"), "7", Problems())
    assert recorded_window("7", [], found) == (1_786_320_000_000, 1_786_329_000_000)  # from the first start to the last end
    assert recorded_window("7_0", [], found) == (1_786_320_000_000, 1_786_321_000_000)
    assert recorded_window("7", [], [replace(found[0], end=None), found[1]]) == (1_786_320_000_000, None)  # one runs still
    assert recorded_window("7", [], [replace(found[0], start=None), found[1]]) is None
    assert recorded_window("7", [], []) is None
    west = replace(found[0], cluster="west", start=5, end=9)  # another job of that number
    assert recorded_window("west/7_0", [], [*found, west]) == (5, 9)
    assert recorded_window("east/7_0", [], [*found, west]) == (1_786_320_000_000, 1_786_321_000_000)
    assert recorded_window("7_0", [], [*found, west]) == (5, 1_786_321_000_000)  # both, so that it is seen that there are two
