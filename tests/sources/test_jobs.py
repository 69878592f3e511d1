"""Job records in every format become one table, and samples find their job."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.jobs.attribute import attribute
from ullage.sources.jobs.hostlist import expand
from ullage.sources.jobs.job import read_jobs
from ullage.sources.jobs.places import SHARED
from ullage.sources.jobs.record import Record, records, table
from ullage.tables import JOBS, SAMPLES, samples

T = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC


def read(path: Path, problems: Problems | None = None) -> list[dict]:
    found = read_jobs(str(path), problems if problems is not None else Problems())
    assert found.schema == JOBS
    return [{name: value for name, value in vars(record).items() if value is not None} for record in records(found)]


def write(folder: Path, text: str, name: str = "jobs.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


# --- plain tables


def test_a_plain_csv_names_devices_and_what_the_application_reported(tmp_path):
    path = write(tmp_path, "job,user,gpus,start,end,mfu\n1,ann,node-1:0-1;node-2:3,1700000000,1700003600,0.41\n")
    shared = {"job": "1", "user": "ann", "start": T, "end": T + 3_600_000, "gpus": 3, "mfu": 0.41}
    assert read(path) == [shared | {"host": h, "index": i} for h, i in (("node-1", 0), ("node-1", 1), ("node-2", 3))]


def test_heads_in_other_spellings_are_known(tmp_path):
    path = write(tmp_path, "Job ID;user_name;NodeList;gpu_num;start_time;end_time;TFLOP/s/GPU\n7;bob;n[1-2];16;2023-11-14T22:13:20Z;;400\n")
    assert read(path) == [{"job": "7", "user": "bob", "start": T, "gpus": 16, "flops_per_gpu": 4e14, "host": host} for host in ("n1", "n2")]


def test_devices_may_be_told_by_uuid(tmp_path):
    path = write(tmp_path, "jobid,gpu_list,start\n7,GPU-a;GPU-b,1700000000\n")
    assert [row["gpu"] for row in read(path)] == ["GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["0.41", "0.5"], [0.41, 0.5]),
        (["41", "50"], [0.41, 0.5]),
        (["41 %", "50%"], [0.41, 0.5]),
        (["0.41", "0.4", "1.8"], [0.41, 0.4, 1.8]),  # an absurd ratio among ratios is no percent
        (["41", "50", "0.9"], [0.41, 0.5, 0.009]),
    ],
)
def test_mfu_is_settled_for_the_column(tmp_path, written, expected):
    path = write(tmp_path, "job,mfu\n" + "".join(f"{n},{value}\n" for n, value in enumerate(written)))
    assert [row["mfu"] for row in read(path)] == pytest.approx(expected)


def test_acmetraces_job_list_gives_jobs_without_a_place(tmp_path):
    # heads as in InternLM/AcmeTrace's README
    heads = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time"
    path = write(tmp_path, f"{heads}\n57,u5,1,8,128,Other,FAILED,x,2023-11-15 06:13:20+08:00,2023-11-15 06:13:30+08:00,1,1,1\n")
    assert read(path) == [{"job": "57", "user": "u5", "start": T, "end": T + 10_000, "state": "FAILED", "gpus": 8}]


def test_bad_rows_are_counted_and_a_job_that_ends_before_it_starts_is_left_out(tmp_path):
    path = write(
        tmp_path,
        "job,gpus,start,end\n1,n1:0,1700000000,1700000060\n2,n1:0,1700000060,1700000000\n3,n1:x,soon,\n4,n1\n,n1:0,1700000000,\n5,n1:0-99999,1,\n",
    )
    problems = Problems()
    assert [row["job"] for row in read(path, problems)] == ["1"]
    assert problems.dropped == {
        "jobs that end before they start": 1,
        "job records that can't be read": 2,
        "job records with a wrong number of columns": 1,
        "job records without a job id": 1,
    }


def test_a_jobs_table_written_as_parquet_or_csv_comes_back(tmp_path):
    made = [
        Record("1", "train", "ann", "c", "n1", 3, "GPU-1", T, T + 5, "COMPLETED", 8, 0.4, 4e14),
        Record("2", host="n2"),
        Record("3", host="n1", index=2, start=T, gpus=1),
        Record("4", gpu="GPU-1", end=T, gpus=1),
        Record(r"5\,5", host="n1"),
    ]
    jobs = table(made, Problems(), escaped=True)
    pq.write_table(jobs, tmp_path / "jobs.parquet")
    assert records(read_jobs(str(tmp_path / "jobs.parquet"), Problems())) == made
    import pyarrow.csv

    pyarrow.csv.write_csv(jobs, tmp_path / "jobs.csv")
    assert records(read_jobs(str(tmp_path / "jobs.csv"), Problems())) == made


def test_what_is_no_job_record_is_refused(tmp_path):
    with pytest.raises(UllageError, match="holds no job records that Ullage reads"):
        read(write(tmp_path, "time,gpu,power\n1,0,300\n"))
    pq.write_table(pa.table({"time": [1], "power": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(UllageError, match="no column of job ids"):
        read(tmp_path / "a.parquet")


# --- Slurm

SACCT = """JobID|JobIDRaw|User|JobName|NodeList|AllocTRES|Start|End|State
100|100|ann|train|gpu[01-02]|billing=9,cpu=9,gres/gpu:h100=16,gres/gpu=16,node=2|2023-11-14T22:13:20|2023-11-14T23:13:20|COMPLETED
100.batch|100.batch||batch|gpu01|cpu=9|2023-11-14T22:13:20|2023-11-14T23:13:20|COMPLETED
101_4|105|bob|a|b|gpu03|gres/gpu=8|2023-11-14T22:13:20|Unknown|RUNNING
102|102|bob|cpu only|cpu01|cpu=4|2023-11-14T22:13:20|2023-11-14T23:13:20|COMPLETED
103|103|bob|never|None assigned||None|2023-11-14T23:13:20|CANCELLED by 7
104|104|eve|hostile|gpu[0-99999999999]|gres/gpu=8|2023-11-14T22:13:20|Unknown|RUNNING
broken
"""


def test_sacct_gives_a_record_per_host_without_steps(tmp_path):
    problems = Problems()
    first = {"job": "100", "user": "ann", "name": "train", "start": T, "end": T + 3_600_000, "state": "COMPLETED", "gpus": 16}
    # the second job's name is "a|b": sacct does not escape it
    running = {"job": "105", "user": "bob", "name": "a|b", "start": T, "state": "RUNNING", "gpus": 8, "host": "gpu03"}
    assert read(write(tmp_path, SACCT, "sacct.txt"), problems) == [first | {"host": "gpu01"}, first | {"host": "gpu02"}, running]
    assert problems.dropped == {
        "jobs without GPUs": 1,
        "jobs that never started": 1,
        "job records that can't be read": 1,
        "lines of sacct with a wrong number of columns": 1,
    }
    assert problems.notes == ["times without a time zone were taken as UTC (sacct.txt)"]


def test_sacct_with_trailing_bars_and_epoch_times_is_read(tmp_path):
    path = write(tmp_path, "JobID|NodeList|Start|End|\n7|n1|1700000000|1700000060|\n", "sacct.txt")
    problems = Problems()
    assert read(path, problems) == [{"job": "7", "host": "n1", "start": T, "end": T + 60_000}]
    assert problems.notes == ["sacct.txt has no column AllocTRES: its jobs are taken to hold every GPU of their hosts"]


def test_sacct_json_is_read_in_its_older_and_newer_form(tmp_path):
    old = {
        "job_id": 7, "name": "train", "association": {"user": "ann", "cluster": "c"}, "cluster": "c", "nodes": "n[1-2]",
        "time": {"start": 1700000000, "end": 1700000060}, "state": {"current": "COMPLETED", "reason": "None"},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 16}, {"type": "gres", "name": "gpu:h100", "count": 16}]},
    }  # fmt: skip
    number = {"set": True, "infinite": False, "number": 1700000000}
    new = {"job_id": 8, "user": "bob", "nodes": "n3", "time": {"start": number, "end": {"set": False, "infinite": False, "number": 0}}}
    path = write(tmp_path, json.dumps({"jobs": [old, new | {"state": {"current": ["RUNNING"]}}, {"job_id": {}}, 5]}), "sacct.json")
    problems = Problems()
    shared = {"job": "7", "name": "train", "user": "ann", "cluster": "c", "start": T, "end": T + 60_000, "state": "COMPLETED", "gpus": 16}
    running = {"job": "8", "user": "bob", "start": T, "state": "RUNNING", "host": "n3"}
    assert read(path, problems) == [shared | {"host": "n1"}, shared | {"host": "n2"}, running]
    assert sum(problems.dropped.values()) == 2


def test_squeue_json_names_the_gpus(tmp_path):
    job = {
        "job_id": 9, "user_name": "ann", "nodes": "n[1-2]", "job_state": ["RUNNING"], "start_time": {"set": True, "number": 1700000000},
        "end_time": {"set": True, "number": 1800000000}, "tres_alloc_str": "cpu=4,gres/gpu=3",
        "gres_detail": ["gpu:h100:2(IDX:0-1)", "gpu:h100:1(IDX:5)"],
    }  # fmt: skip
    rows = read(write(tmp_path, json.dumps({"jobs": [job]}), "squeue.json"))
    assert [(row["host"], row["index"]) for row in rows] == [("n1", 0), ("n1", 1), ("n2", 5)]
    assert all("end" not in row and row["gpus"] == 3 for row in rows)  # its end is the time limit's, it still runs


def test_times_that_say_no_zone_are_read_in_the_zone_that_is_named(tmp_path):
    from zoneinfo import ZoneInfo

    berlin = ZoneInfo("Europe/Berlin")  # 2023-11-14 22:13:20 there is 21:13:20 UTC
    for name, text in (("sacct.txt", SACCT), ("jobs.csv", "job,host,start\n1,n1,2023-11-14 22:13:20\n2,n1,2023-11-14T22:13:20Z\n")):
        problems = Problems()
        starts = [record.start for record in records(read_jobs(str(write(tmp_path, text, name)), problems, berlin))]
        assert starts == ([T - 3_600_000] * 3 if name == "sacct.txt" else [T - 3_600_000, T])  # one that says its zone keeps it
        assert problems.notes == []
    # in autumn the clock shows 02:30 twice, and in spring never
    odd = "job,host,start\n1,n1,2023-10-29 02:30:00\n2,n1,2023-03-26 02:30:00\n"
    for more in ("", "3,n1,2023-11-14T22:13:20Z\n"):  # times without a zone alone, and mixed with others: read in different ways
        starts = [record.start for record in records(read_jobs(str(write(tmp_path, odd + more)), Problems(), berlin))]
        assert starts[:2] == [1_698_539_400_000, 1_679_792_400_000]


def test_a_zone_that_is_none_is_refused_by_the_command(tmp_path):
    from click.testing import CliRunner

    from ullage.cli import cli

    (tmp_path / "a.csv").write_text("time,gpu,tensor_active,sm_clock\n1700000000,0,0.4,1980\n")
    jobs = write(tmp_path, SACCT, "sacct.txt")
    told = CliRunner().invoke(cli, ["fleet", str(tmp_path / "a.csv"), "--jobs", str(jobs), "--time-zone", "Mars/Olympus"])
    assert told.exit_code == 1 and "no time zone is called 'Mars/Olympus'" in str(told.exception)


@pytest.mark.full
def test_many_jobs_of_a_small_archive_take_little_memory(tmp_path):
    import gzip
    import subprocess
    import sys

    one = json.dumps({"job_id": 7, "nodes": "n1", "time": {"start": 1700000000}, "comment": "x" * 4000, "tres": {"allocated": []}})
    line = "7|n1|gres/gpu=8|1700000000|1700000060|" + "x" * 500 + "\n"
    texts = {
        "sacct.json": ('{"jobs": [' + ",".join([one] * 10_000) + "]}").encode(),  # 41 MB, which 0.3 MB of gzip hold
        "sacct.txt": ("JobID|NodeList|AllocTRES|Start|End|Comment\n" + line * 60_000).encode(),
    }
    code = (
        "import resource, sys; from ullage.problems import Problems; from ullage.sources.jobs.job import read_jobs\n"
        "import pyarrow; base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "read_jobs(sys.argv[1], Problems()); print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) >> 10)"
    )
    for name, text in texts.items():
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(text, 1))
        taken = int(subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout)
        assert taken < (180 if name == "sacct.json" else 100), name  # MB; whole, as objects, the first took 1 GB


def test_more_json_than_is_read_whole_is_refused(tmp_path, monkeypatch):
    from ullage.sources.jobs import sacct

    text = '{"jobs": [{"job_id": 1}]}'
    for most in (len(text), len(text) - 1):
        monkeypatch.setattr(sacct, "MOST_JSON", most)
        if most == len(text):
            assert read(write(tmp_path, text, "sacct.json")) == []
        else:
            with pytest.raises(UllageError, match=r"holds more than .* of JSON") as told:
                read(write(tmp_path, text, "sacct.json"))
            assert "--parsable2" in told.value.hint


def test_half_a_json_is_one_clear_error(tmp_path):
    with pytest.raises(UllageError, match=r"sacct.json is not whole JSON"):
        read(write(tmp_path, '{"jobs": [{"job_id": 7', "sacct.json"))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node[01-04,07],gpu-[a]", ["node01", "node02", "node03", "node04", "node07", "gpu-a"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("a, b", ["a", "b"]),
        ("n[3-1]", []),
        ("", []),
    ],
)
def test_host_lists_are_expanded(text, hosts):
    assert expand(text) == hosts


@pytest.mark.parametrize("text", ["node[0-99999999999]", "n[0-999]" * 2, "n[0-9][0-9][0-9][0-9][0-9][0-9]", "n[1-2", "n1-2]", "n[[1]]"])
def test_hostile_host_lists_are_refused(text):
    with pytest.raises(UllageError):
        expand(text)


@given(st.text("n[]0123-,", max_size=40))
def test_any_host_list_is_hosts_or_one_clear_error(text):
    with contextlib.suppress(UllageError):
        assert len(expand(text, most=1000)) <= 1000


HEADS = ["job,gpus,start,end,mfu,nodes\n", "JobID|JobName|NodeList|AllocTRES|Start|End\n", '{"jobs": [{"job_id": 1,']
WORDS = ["n1:0-3", "99999999999999", "-1", "\u00b2", "1700000000", "inf", "n[1-", "gres/gpu=999999999", '"nodes": "n1"}]}', '"']


@settings(max_examples=150, deadline=None)
@given(
    head=st.sampled_from(HEADS),
    cells=st.lists(st.one_of(st.text(max_size=12), st.sampled_from(WORDS)), max_size=24),
    sign=st.sampled_from([",", "|", "\n"]),
)
def test_any_words_after_a_head_give_records_or_one_clear_error(tmp_path_factory, head, cells, sign):
    rows = [sign.join(cells[at : at + 6]) for at in range(0, len(cells), 6)]
    path = tmp_path_factory.mktemp("any") / "jobs"
    path.write_bytes((head + "\n".join(rows)).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(UllageError):
        read(path)


def test_absurd_numbers_in_slurms_json_are_counted(tmp_path):
    huge = {"allocated": [{"type": "gres", "name": "gpu", "count": 10**15}]}
    jobs = [{"job_id": 1, "time": {"start": 10**30}}, {"job_id": 2, "time": {"start": 1}, "tres": huge}]
    problems = Problems()
    assert read(write(tmp_path, json.dumps({"jobs": jobs}), "sacct.json"), problems) == []
    assert problems.dropped == {"job records that can't be read": 2}


# --- who holds it now


def test_a_mapping_folder_says_who_holds_a_gpu_now(tmp_path):
    (tmp_path / "0").write_text("41\n42\n")
    (tmp_path / "1.7").write_text("43\n")
    (tmp_path / "2").write_text("")
    problems = Problems()
    assert read(tmp_path, problems) == [{"job": "41", "index": 0}, {"job": "42", "index": 0}, {"job": "43", "index": 1, "gpu": "1.7"}]
    assert "says who holds a GPU now" in problems.notes[0]


def test_mapping_folders_may_be_named_after_hosts(tmp_path):
    for host in ("n1", "n2"):
        (tmp_path / host).mkdir()
        (tmp_path / host / "0").write_text(f"job-{host}\n")
    assert read(tmp_path) == [{"job": "job-n1", "host": "n1", "index": 0}, {"job": "job-n2", "host": "n2", "index": 0}]


def test_amds_prolog_folder_is_read(tmp_path):
    told = {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "ann", "SLURM_JOB_PARTITION": "p", "SLURM_CLUSTER_NAME": "c", "CUDA_VISIBLE_DEVICES": ""}
    (tmp_path / "0").write_text(json.dumps(told))
    (tmp_path / "1").write_text("{half")
    problems = Problems()
    assert read(tmp_path, problems) == [{"job": "7", "user": "ann", "cluster": "c", "index": 0}]
    assert problems.dropped == {"files of the Slurm prolog that are not JSON": 1}


# --- the join


def held(rows: list[dict], made: list[Record], problems: Problems | None = None) -> list[tuple[str | None, str | None]]:
    columns = {name: [row.get(name) for row in rows] for name in ("time", "cluster", "host", "gpu", "index", "mig", "job", "user")}
    before = pa.Table.from_batches([samples(columns)])
    problems = problems if problems is not None else Problems()
    after = attribute(before, table(made, Problems()), problems)
    assert after.schema == SAMPLES and after.drop(["job", "user"]) == before.drop(["job", "user"])
    return list(zip(after["job"].to_pylist(), after["user"].to_pylist(), strict=True))


def test_a_sample_belongs_to_the_job_that_held_the_time_before_it():
    rows = [{"time": t, "host": "n1", "index": 0, "gpu": "G"} for t in (10, 11, 20, 21, 30, 31)]
    made = [Record("a", user="ann", host="n1", index=0, start=10, end=20), Record("b", host="n1", index=0, start=20, end=30)]
    # start < t <= end: 10 is before a, 20 is still a's, 30 still b's
    assert [job for job, _ in held(rows, made)] == [None, "a", "a", "b", "b", None]
    assert held(rows, made)[1] == ("a", "ann")


def test_jobs_that_share_a_device_are_joined_sorted():
    rows = [{"time": t, "gpu": "G"} for t in (5, 15, 25)]
    made = [
        Record("b", user="x", gpu="G", start=0, end=20),
        Record("a", user="w", gpu="G", start=10, end=30),
        Record("a", gpu="G", start=12, end=14),
    ]
    assert held(rows, made) == [("b", "x"), ("a,b", "w,x"), ("a", "w")]


def test_labels_win_and_the_records_add_the_user():
    rows = [{"time": 5, "gpu": "G", "job": "mine"}, {"time": 5, "gpu": "H", "job": "mine", "user": "me"}, {"time": 5, "gpu": "I"}]
    made = [Record("other", user="o", gpu="G"), Record("mine", user="ann"), Record("other", user="o", gpu="I")]
    assert held(rows, made) == [("mine", "ann"), ("mine", "me"), ("other", "o")]


def test_a_host_is_found_with_and_without_its_domain():
    rows = [{"time": 5, "host": "n1.cluster.local", "index": 0, "gpu": "G"}, {"time": 5, "host": "n2", "index": 0, "gpu": "H"}]
    assert held(rows, [Record("a", host="n1", index=0), Record("b", host="N2.cluster.local", index=0)]) == [("a", None), ("b", None)]


def test_a_short_name_of_two_hosts_is_not_guessed():
    rows = [{"time": 5, "host": f"n1.{site}", "index": 0, "gpu": site} for site in ("east", "west")]
    problems = Problems()
    assert held(rows, [Record("a", host="n1", index=0)], problems) == [(None, None)] * 2
    assert problems.notes == ["1 of 1 jobs in the records match no sample (first: a)"]
    assert held(rows, [Record("a", host="n1.north", index=0)]) == [(None, None)] * 2


def test_one_host_name_in_two_clusters_is_settled_by_the_records_cluster():
    rows = [{"time": 5, "cluster": c, "host": "n1", "index": 0, "gpu": c} for c in ("east", "west")]
    assert held(rows, [Record("a", cluster="west", host="n1", index=0)]) == [(None, None), ("a", None)]
    assert held(rows[:1], [Record("a", cluster="slurm-east", host="n1", index=0)]) == [("a", None)]


def test_a_whole_host_is_held_only_when_the_count_says_so():
    rows = [{"time": 5, "host": host, "index": i, "gpu": f"{host}/{i}"} for host in ("n1", "n2") for i in (0, 1)]
    problems = Problems()
    made = [Record("all", host="n1", gpus=4), Record("all", host="n2", gpus=4), Record("part", host="n2", gpus=1), Record("any", host="n1")]
    assert [job for job, _ in held(rows, made, problems)] == ["all,any", "all,any", "all", "all"]
    assert problems.notes == [
        f"1 jobs {SHARED} (first: part)",
        "1 of 3 jobs in the records match no sample (first: part)",
    ]


def test_an_index_without_a_host_means_the_only_host():
    rows = [{"time": 5, "host": "n1", "index": i, "gpu": f"G{i}"} for i in (0, 1)]
    assert [job for job, _ in held(rows, [Record("a", index=1)])] == [None, "a"]
    problems = Problems()
    assert [job for job, _ in held([*rows, {"time": 5, "host": "n2", "index": 1, "gpu": "H"}], [Record("a", index=1)], problems)] == [
        None
    ] * 3
    assert problems.notes[0] == "1 jobs name GPUs by number without a host, but the samples have 2 hosts; left out (first: a)"


def test_a_mig_instance_has_its_own_job():
    rows = [{"time": 5, "host": "n1", "index": 0, "gpu": "G", "mig": mig} for mig in ("1g.10gb/7", "1g.10gb/8", None)]
    assert [job for job, _ in held(rows, [Record("a", index=0, gpu="0.7")])] == ["a", None, None]


def test_a_partial_row_that_names_no_host_is_found_by_its_uuid():
    rows = [{"time": 5, "host": "n1", "index": 0, "gpu": "G"}, {"time": 6, "gpu": "G"}]
    assert [job for job, _ in held(rows, [Record("a", host="n1", index=0)])] == ["a", "a"]


def test_a_stray_time_does_no_harm():
    rows = [{"time": t, "gpu": "G"} for t in (-(10**14), 5, 15, 2 * 10**14)]
    assert [job for job, _ in held(rows, [Record("a", gpu="G", start=0, end=10)])] == [None, "a", None, None]


def test_nothing_to_join_leaves_the_samples_alone():
    empty = SAMPLES.empty_table()
    assert attribute(empty, table([Record("a", gpu="G")], Problems()), Problems()) == empty
    some = pa.Table.from_batches([samples({"time": [5], "gpu": ["G"]})])
    assert attribute(some, JOBS.empty_table(), Problems()) is some


def test_a_comma_in_the_name_of_a_job_or_a_user_makes_no_second_one():
    rows = [{"time": t, "gpu": "G"} for t in (5, 15)]
    made = [Record("a,b", user="x,y", gpu="G", start=0, end=20), Record("c", user="z", gpu="G", start=10, end=20)]
    assert held(rows, made) == [(r"a\,b", r"x\,y"), (r"a\,b,c", r"x\,y,z")]
    labelled = [{"time": 5, "gpu": "G", "job": r"a\,b"}]
    assert held(labelled, made[:1]) == [(r"a\,b", r"x\,y")]  # the same job, by its label


TIMES = st.one_of(st.none(), st.integers(0, 20))


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 22), st.integers(0, 1), st.integers(0, 1), st.sampled_from([None, None, "own"])), max_size=25),
    made=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 1), st.booleans(), TIMES, TIMES), max_size=8),
)
def test_the_join_agrees_with_looking_at_every_record_for_every_sample(rows, made):
    sampled = [{"time": t, "host": f"n{h}", "index": i, "gpu": f"n{h}/{i}", "job": job} for t, h, i, job in rows]
    told = [
        Record(j, host=f"n{h}", index=i, start=s, end=e) if by_index else Record(j, gpu=f"n{h}/{i}", start=s, end=e)
        for j, h, i, by_index, s, e in made
        if s is None or e is None or s <= e
    ]

    def brute(row: dict) -> str | None:
        holders = {
            r.job
            for r in told
            if (r.gpu == row["gpu"] or (r.host, r.index) == (row["host"], row["index"]))
            and (r.start is None or r.start < row["time"])
            and (r.end is None or row["time"] <= r.end)
        }
        return row["job"] or ",".join(sorted(holders)) or None

    assert [job for job, _ in held(sampled, told)] == [brute(row) for row in sampled] if sampled else True


def test_many_pieces_and_chunks_are_joined_as_one(monkeypatch):
    monkeypatch.setattr("ullage.sources.jobs.attribute._ROWS", 7)
    batches = [samples({"time": [t, t], "gpu": [f"G{t % 3}", "H"], "job": [None, "own"]}) for t in range(1, 21)]
    after = attribute(pa.Table.from_batches(batches), table([Record("a", gpu="G1", user="u")], Problems()), Problems())
    expected = [("a" if t % 3 == 1 else None, "own") for t in range(1, 21)]
    assert after["job"].to_pylist() == list(np.array(expected).ravel())
