"""Which jobs an id means, and what is said where it means none."""

from __future__ import annotations

import pytest

from ullage.errors import UllageError
from ullage.reports.job.job_ids import NamedJob, meant_jobs
from ullage.sources.jobs.slurm_job import SlurmJob, SlurmStep

KNOWN = [
    *(NamedJob("east", name) for name in ("4711", "4712", "4713", "5000_1", "5000_2", "ml/train-0", "6000")),
    *(NamedJob("west", name) for name in ("4712", "7000")),
]
# 4711 is an array of three tasks, whose last has the array's own number
RECORDS = [
    SlurmJob("4712", "4711_0", "east", steps=(SlurmStep("4711_0.batch", 10, 90), SlurmStep("4711_0.0", 20, 50))),
    SlurmJob("4713", "4711_1", "east"),
    SlurmJob("4711", "4711_2", "east", steps=(SlurmStep("4711_2.0", 5, None),)),
]


@pytest.mark.parametrize(
    ("wanted", "records", "names"),
    [
        ("6000", [], ["6000"]),
        ("east/4712", [], ["4712"]),
        ("ml/train-0", [], ["ml/train-0"]),  # a pod's name has a slash, too
        ("east/ml/train-0", [], ["ml/train-0"]),
        ("4711", [], ["4711"]),
        ("4711", RECORDS, ["4711", "4712", "4713"]),
        ("4711_1", RECORDS, ["4713"]),
        ("4711_2", RECORDS, ["4711"]),
        ("5000", [], ["5000_1", "5000_2"]),  # samples that name tasks as people do
        ("5000_2", [], ["5000_2"]),
        ("east/4711_0.batch", RECORDS, ["4712"]),
        ("west/7000", [], ["7000"]),
    ],
)
def test_an_id_means_what_people_mean_by_it(wanted: str, records: list[SlurmJob], names: list[str]) -> None:
    known = [job for job in KNOWN if not (job.cluster == "west" and job.name == "4712" and records)]
    assert [job.name for job in meant_jobs(wanted, known, records, "store").jobs] == names


def test_a_step_has_its_own_time() -> None:
    assert meant_jobs("east/4711_0.batch", KNOWN, RECORDS, "store").step == (10, 90)
    assert meant_jobs("4711_2.0", KNOWN, RECORDS, "store").step == (5, None)
    assert meant_jobs("4711_2.0", KNOWN, RECORDS, "store").step_window((7, 60)) == (7, 60)
    assert meant_jobs("east/4711_0.0", KNOWN, RECORDS, "store").step_window((0, 100)) == (20, 50)


@pytest.mark.parametrize(
    ("wanted", "records", "problem", "hint"),
    [
        ("600", [], "no sample of store is of a job '600'", "did you mean '6000'"),
        ("ml/train-1", [], "no sample of store is of a job 'ml/train-1'", "'ml/train-0'"),
        ("nobody", [], "no sample of store is of a job 'nobody'", "`ullage fleet store --by job` lists all"),
        ("4712", [], "several clusters have a job '4712': east, west", "name one: 'east/4712'"),
        ("6000.0", [], "no record says when step 6000.0 ran", "or ask for the job: 6000"),
        ("4711_0.7", RECORDS, "no record says when step 4711_0.7 ran", "--jobs FILE"),
        ("9", [SlurmJob("9", "9", "east")], "job 9 is in the records, and no sample of store is of it", "--since"),
        ("\x1b[31m", [], "no sample of store is of a job '\\x1b[31m'", "lists all"),
    ],
)
def test_an_id_that_means_nothing_is_refused_in_one_sentence(wanted: str, records: list[SlurmJob], problem: str, hint: str) -> None:
    known = [job for job in KNOWN if job.cluster == "east"] if records and wanted.startswith("4711") else KNOWN
    with pytest.raises(UllageError) as refused:
        meant_jobs(wanted, known, records, "store")
    assert problem in refused.value.problem and hint in refused.value.hint


def test_where_nothing_names_a_job_the_records_are_asked_for() -> None:
    with pytest.raises(UllageError, match="no sample of store names a job"):
        meant_jobs("4711", [], [], "store")
