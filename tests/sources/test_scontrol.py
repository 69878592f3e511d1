"""`scontrol show job -d`: jobs that hold some of a host's GPUs, and which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.problems import Problems
from ullage.sources.jobs.job import read_jobs
from ullage.sources.jobs.record import records

START, END = 1_785_888_000_000, 1_785_891_600_000  # 2026-08-05 00:00 and 01:00 UTC


def job(number=7, name="train", *, user="ann(1001)", state="RUNNING", nodes="n[1-2]", tres="cpu=16,node=2,gres/gpu=3", details=(), more=()):
    lines = [
        f"JobId={number} JobName={name}",
        f"   UserId={user} GroupId=ml(100) MCS_label=N/A",
        f"   JobState={state} Reason=None Dependency=(null)",
        "   RunTime=00:10:00 TimeLimit=1-00:00:00 TimeMin=N/A",
        "   StartTime=2026-08-05T00:00:00 EndTime=2026-08-05T01:00:00 Deadline=N/A",
        "   ReqNodeList=(null) ExcNodeList=(null)",
        f"   NodeList={nodes}",
        "   NumNodes=2 NumCPUs=16 NumTasks=2 CPUs/Task=8 ReqB:S:C:T=0:0:*:*",
        f"   ReqTRES=cpu=16,gres/gpu=64 AllocTRES={tres}" if tres else "   TRES=(null)",
        *(f"     Nodes={host} CPU_IDs=0-7 Mem=32768 GRES={gres}" for host, gres in details),
        "   Command=/home/ann/run.sh",
        "   WorkDir=/home/ann",
        *more,
    ]
    return "\n".join(lines) + "\n\n"


def read(tmp_path, text, problems=None):
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    return [
        (one.job, one.name, one.user, one.host, one.index, one.gpus, one.start, one.end, one.state)
        for one in records(read_jobs(str(path), problems or Problems()))
    ]


def oneline(text):
    return " ".join(line.strip() for line in text.splitlines() if line) + "\n"


@pytest.mark.parametrize("form", [str, oneline])
def test_the_gpus_of_each_host_are_told(tmp_path, form):
    details = [("n1", "gpu:h100:2(IDX:0-1)"), ("n2", "gpu:h100:1(IDX:5)")]
    text = form(job(details=details)) + form(job(8, "a b=c", user="bob(7)", state="COMPLETED", nodes="n3", tres="gres/gpu=8"))
    problems = Problems()
    assert read(tmp_path, text, problems) == [
        ("7", "train", "ann", "n1", 0, 3, START, None, "RUNNING"),  # the end that is told is the time limit's
        ("7", "train", "ann", "n1", 1, 3, START, None, "RUNNING"),
        ("7", "train", "ann", "n2", 5, 3, START, None, "RUNNING"),
        ("8", "a b=c", "bob", "n3", None, 8, START, END, "COMPLETED"),
    ]
    assert not problems.dropped and problems.notes == ["times without a time zone were taken as UTC (jobs.txt)"]


@pytest.mark.parametrize(
    ("gres", "indexes"),
    [
        ("gpu:2(IDX:0-1)", [0, 1]),
        ("gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:4)", [0, 1, 4]),  # a host of two kinds
        ("shard:3(IDX:0),gpu:1(IDX:2)", [2]),
        ("gpu:4", [None]),  # without an index: four of the host's, nobody says which
        ("gpu:1g.10gb:1(IDX:3)", [None]),  # Slurm counts instances here, not GPUs
        ("gpu:nvidia_h100_1g.10gb:2(IDX:3,9)", [None]),
        ("gpu:0(IDX:)", [None]),
    ],
)
def test_what_a_detail_says_of_gpus(tmp_path, gres, indexes):
    assert [row[4] for row in read(tmp_path, job(nodes="n1", details=[("n1", gres)]))] == indexes


def test_hosts_with_the_same_detail_share_a_line(tmp_path):
    rows = read(tmp_path, job(nodes="n[1-3]", details=[("n[1-2]", "gpu:1(IDX:7)"), ("n3", "gpu:1(IDX:0)")]))
    assert [(row[3], row[4]) for row in rows] == [("n1", 7), ("n2", 7), ("n3", 0)]


def test_jobs_that_wait_or_hold_no_gpu_are_counted(tmp_path):
    problems = Problems()
    text = job(state="PENDING", nodes="(null)", tres="") + job(8, tres="cpu=4") + job(9, nodes="n1")
    assert [row[0] for row in read(tmp_path, text, problems)] == ["9"]
    assert problems.dropped == {"jobs that never started": 1, "jobs without GPUs": 1}


def test_what_users_write_changes_nothing_that_slurm_says(tmp_path):
    forged = ["   Comment=JobState=COMPLETED NodeList=n9", "   Comment= Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:6)"]
    text = job(name="x UserId=eve(0) GroupId=root(0)", nodes="n1", details=[("n1", "gpu:1(IDX:2)")], more=forged)
    [row] = read(tmp_path, text)
    assert row == ("7", "x UserId=eve(0) GroupId=root(0)", "ann", "n1", 2, 3, START, None, "RUNNING")
    problems = Problems()
    assert read(tmp_path, oneline(text) + job(8, nodes="n1"), problems)[0][0] == "8"  # in one line nobody can tell
    assert problems.dropped == {"job records that can't be read": 1}


def test_a_line_of_signs_is_soon_refused(tmp_path):
    problems = Problems()
    assert not read(tmp_path, "JobId=1 " + "a==== " * 10_000 + "\n", problems)
    assert problems.dropped == {"job records that can't be read": 1}


@given(st.text(alphabet="JobId=7 Name\nUserId=(0)GRES gpu:1IDX,[-]\t", max_size=200))
def test_any_words_after_a_number_give_records_or_a_count(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("jobs") / "jobs.txt"
    path.write_text("JobId=1 " + text)
    problems = Problems()
    rows = read_jobs(str(path), problems)
    assert len(rows) or problems.dropped
