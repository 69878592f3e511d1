"""Jobs that hold some GPUs of a host, nobody says which: they hold as many as their records say, those that do something first."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from ullage.job_names import separate_names
from ullage.problems import Problems
from ullage.sources.jobs.attribute import attribute
from ullage.sources.jobs.job import read_jobs
from ullage.sources.jobs.record import Record, table
from ullage.tables import samples

T = 1_700_000_000_000


def holders(rows, made, problems=None):
    """The job of each row."""
    columns = {name: [row.get(name) for row in rows] for name in ("time", "cluster", "host", "gpu", "index", "mig", "job", "gr_active")}
    columns["gr_active"] = np.array([np.nan if value is None else value for value in columns["gr_active"]])
    given = made if isinstance(made, pa.Table) else table(made, Problems())
    after = attribute(pa.Table.from_batches([samples(columns)]), given, problems if problems is not None else Problems())
    return after["job"].to_pylist()


def host(name, time, busy, **more):
    """A reading of a host: one GPU for each sign of `busy`, which does something where it is 1."""
    return [
        {"time": time, "host": name, "index": i, "gpu": f"{name}/{i}", "gr_active": float(sign) / 2} | more for i, sign in enumerate(busy)
    ]


def test_one_job_with_part_of_a_host_has_the_gpus_that_do_something_and_then_the_first():
    made = [Record("a", host="n", gpus=2, start=0, end=90)]
    assert holders(host("n", 10, "0011"), made) == [None, None, "a", "a"]
    assert holders(host("n", 10, "0111"), made) == [None, "a", "a", None]  # the third busy one is beyond its count
    assert holders(host("n", 10, "0000"), made) == ["a", "a", None, None]
    assert holders(host("n", 91, "1111"), made) == [None] * 4


def test_a_gpu_that_rests_stays_with_the_job_for_which_it_worked():
    made = [Record("a", host="n", gpus=2, start=0, end=90)]
    rows = host("n", 10, "0011") + host("n", 20, "0000") + host("n", 30, "0010")
    assert holders(rows, made) == [None, None, "a", "a"] * 3


def test_jobs_that_share_a_host_hold_their_gpus_together():
    made = [Record("a", host="n", gpus=2, start=0, end=20), Record("b", host="n", gpus=1, start=10, end=90)]
    rows = host("n", 10, "1000") + host("n", 20, "1001") + host("n", 30, "1001")
    found = holders(rows, made)
    assert found[:4] == ["a", "a", None, None]
    assert Counter(found[4:8]) == {"a,b": 3, None: 1} and found[4] == found[7] == "a,b"
    assert found[8:] == ["b", None, None, None]


def test_what_labels_and_records_name_is_nobody_elses_and_counts_as_held():
    made = [Record("a", host="n", gpus=2, start=0, end=90), Record("b", host="n", index=0, start=0, end=90)]
    assert holders(host("n", 10, "1100"), made) == ["b", "a", "a", None]
    labelled = host("n", 10, "1100")
    labelled[3]["job"] = "a"  # so one of its two is known
    assert holders(labelled, made) == ["b", "a", None, "a"]


def test_a_job_on_several_hosts_holds_equally_many_on_each():
    made = [Record("a", host=name, gpus=5, start=0, end=90) for name in ("m", "n")]
    rows = host("m", 10, "0000") + host("n", 10, "0000")
    assert Counter(zip([row["host"] for row in rows], holders(rows, made), strict=True)) == {
        ("m", "a"): 3, ("m", None): 1, ("n", "a"): 2, ("n", None): 2,
    }  # fmt: skip


def test_two_records_of_one_job_hold_no_more_than_one():
    made = [Record("a", host="n", gpus=2, start=0), Record("a", host="n", gpus=2, start=0, end=90)]
    assert Counter(holders(host("n", 10, "0000"), made)) == {"a": 2, None: 2}


def test_the_record_that_names_devices_wins():
    loose = [Record("a", user="ann", host="n", gpus=2, start=0, end=50), Record("c", host="n", gpus=1, start=0, end=50)]
    named = [Record("a", host="n", index=i) for i in (1, 3)]  # as a mapping folder has it: since when, nobody says
    found = holders(host("n", 10, "1111"), loose + named)
    assert found == ["c", "a", None, "a"]
    assert holders(host("n", 60, "1111"), loose + named) == [None] * 4  # the other record says until when


def test_sacct_beside_squeue_and_a_mapping_folder_combine(tmp_path):
    heads = "JobIDRaw|User|NodeList|AllocTRES|Start|End|State"
    lines = [
        "7|ann|n1|gres/gpu=2|2023-11-14T22:13:20Z|2023-11-14T23:13:20Z|COMPLETED",
        "8|bob|n1|gres/gpu=1|2023-11-14T22:13:20Z|Unknown|RUNNING",
    ]
    (tmp_path / "sacct.txt").write_text("\n".join([heads, *lines]))
    running = {
        "job_id": 7, "user_name": "ann", "nodes": "n1", "job_state": ["RUNNING"], "start_time": 1700000000, "tres_alloc_str": "gres/gpu=2",
        "gres_detail": ["gpu:h100:2(IDX:2-3)"],
    }  # fmt: skip
    (tmp_path / "squeue.json").write_text(json.dumps({"jobs": [running]}))
    (tmp_path / "mapping" / "n1").mkdir(parents=True)
    (tmp_path / "mapping" / "n1" / "1").write_text("8\n")
    made = pa.concat_tables([read_jobs(str(tmp_path / name), Problems()) for name in ("sacct.txt", "squeue.json", "mapping")])
    problems = Problems()
    assert holders(host("n1", T + 1000, "1111"), made, problems) == [None, "8", "7", "7"]
    assert holders(host("n1", T + 3_600_001, "1111"), made) == [None, "8", None, None]
    assert not any("part of a host" in note for note in problems.notes)


def test_a_note_says_whose_work_can_not_be_told():
    problems = Problems()
    made = [Record("a", host="n", gpus=2), Record("b", host="n", gpus=1)]
    holders(host("n", 10, "1100"), made, problems)
    assert problems.lines() == [
        "2 jobs hold part of a host and their records do not say which GPUs: as many GPUs as they hold are theirs, together where several "
        "share a host, those that do something first; whose the work was can't be told (first: a)"
    ]


def test_part_of_a_host_with_slices_is_left_out():
    rows = host("n", 10, "11", mig="1g.10gb/7")
    problems = Problems()
    assert holders(rows, [Record("a", host="n", gpus=1)], problems) == [None, None]
    assert problems.notes[0] == "1 jobs hold part of a host with MIG instances and their records do not say which; left out (first: a)"


def test_gpus_that_are_read_one_after_the_other_are_counted_once():
    # each GPU works in every second reading, never both at once by a tick of its own: one job with one GPU holds one at a time
    made = [Record("a", host="n", gpus=1, start=0)]
    rows = []
    for reading in range(1, 200):
        for i in (0, 1):
            on = (reading + i) % 2
            rows.append({"time": 10_000 * reading + 40 * i, "host": "n", "index": i, "gpu": f"n/{i}", "gr_active": on / 2})
    found = holders(rows, made)
    assert all((job == "a") == (row["gr_active"] > 0) for job, row in zip(found, rows, strict=True))


def test_a_missed_reading_is_bridged():
    # GPU 1 works all the time for the job, and is not read every third time: nobody else's reading stands in for it
    made = [Record("a", host="n", gpus=1, start=0)]
    rows = [row for n in range(1, 99) for row in host("n", 10_000 * n, "01") if row["index"] == 0 or n % 3]
    assert all((job == "a") == (row["index"] == 1) for job, row in zip(holders(rows, made), rows, strict=True))


def test_rows_that_complete_each_other_are_one_reading():
    made = [Record("a", host="n", gpus=1, start=0)]
    rows = [row | {"gr_active": None} for row in host("n", 10, "00")] + host("n", 10, "01")
    assert holders(rows, made) == [None, "a", None, "a"]


# --- second by second


def drawn(seed):
    """Some hosts, read together every few seconds, and jobs of which some say which GPUs they hold."""
    rng = random.Random(seed)
    every = rng.choice((1, 5, 15))
    hosts = {f"n{h}": rng.choice((1, 2, 4, 8)) for h in range(rng.randint(1, 3))}
    rows = []
    for name, gpus in hosts.items():
        busy = [rng.random() for _ in range(gpus)]
        for time in range(every, every * rng.randint(3, 20), every):
            signs = ["1" if rng.random() < level else "0" for level in busy]
            for row in host(name, time * 1000, signs):
                label = rng.choice("ab") if seed % 3 == 0 and rng.random() < 0.1 else None
                rows.append(row | {"job": label})
    made = []
    for number in range(rng.randint(1, 6)):
        name = rng.choice(list(hosts))
        start = rng.choice((None, rng.randint(-20, 100) * 1000))
        end = rng.choice((None, (start or 0) + rng.randint(0, 100) * 1000))
        more = {"index": rng.randrange(hosts[name])} if rng.random() < 0.25 else {"gpus": rng.randint(1, hosts[name] + 1)}
        made.append(Record("abcdef"[number], host=name, start=start, end=end, **more))
    return every, hosts, rows, made


def runs(record, time):
    return (record.start is None or record.start < time) and (record.end is None or time <= record.end)


def reference(every, hosts, rows, made):
    """GPU-seconds by (host, GPU, job), a second at a time; short, slow, and meant to be checked by reading."""
    read = defaultdict(dict)  # (host, time) -> index -> row
    for row in rows:
        read[row["host"], row["time"]][row["index"]] = row
    said = {}  # (host, time) -> (who is named by GPU, how many GPUs each further job holds)
    worked = Counter()  # (host, jobs and counts, index) -> readings at which it did something while just these jobs ran
    for (name, time), gpus in read.items():
        here = [record for record in made if record.host == name and runs(record, time)]
        named = {}
        for index, row in gpus.items():
            wholly = {r.job for r in here if r.index == index or (r.index is None and r.gpus >= hosts[name])}
            named[index] = {row["job"]} if row["job"] else wholly
        loose = {r.job: r.gpus for r in here if r.index is None and r.gpus < hosts[name]}
        said[name, time] = named, loose
        for index, row in gpus.items():
            worked[name, tuple(sorted(loose.items())), index] += row["gr_active"] > 0
    seconds = Counter()
    for (name, time), gpus in read.items():
        for _ in range(every):
            named, loose = said[name, time]
            left = {job: count - sum(job in jobs for jobs in named.values()) for job, count in loose.items()}
            left = {job: count for job, count in left.items() if count > 0}
            key = tuple(sorted(loose.items()))
            free = [index for index in gpus if not named[index]]
            free.sort(key=lambda index: (not gpus[index]["gr_active"], -worked[name, key, index], index))
            for index in gpus:
                theirs = set(left) if index in free[: sum(left.values())] else set()
                seconds[name, index, ",".join(sorted(named[index] or theirs)) or None] += 1
    return seconds


@pytest.mark.parametrize("block", range(6))
def test_our_shares_agree_with_a_reference_second_by_second(block):
    for seed in range(100 * block, 100 * block + 100):
        every, hosts, rows, made = drawn(seed)
        found = Counter()
        for row, job in zip(rows, holders(rows, made), strict=True):
            found[row["host"], row["index"], job] += every
        assert found == reference(every, hosts, rows, made), seed


def test_what_jobs_hold_adds_up_to_what_their_records_say():
    for seed in range(200):
        rng = random.Random(seed)
        gpus, made, left = 8, [], 8
        for job in "abcd":
            count = rng.randint(0, left)
            if count:
                made.append(Record(job, host="n", gpus=count, start=0))
            left -= count
        rows = [row for n in range(1, 30) for row in host("n", n * 1000, [rng.choice("01") for _ in range(gpus)])]
        found = holders(rows, made)
        loose = [record for record in made if record.gpus < gpus]
        for n in range(1, 30):  # at every reading
            held = [job for job, row in zip(found, rows, strict=True) if job and row["time"] == n * 1000]
            assert len(held) == sum(record.gpus for record in made), seed
            assert {name for job in held for name in separate_names(job)} == {record.job for record in loose or made}, seed
