"""Samples at rest: what goes in comes out, once, settled as if it had come in one piece."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.cli._parts import question_or_group
from ullage.errors import UllageError
from ullage.render.store import RetainedStore, retained_view
from ullage.store.durable import locked
from ullage.store.parts import read_part
from ullage.store.reading import open_settled
from ullage.store.store import Store
from ullage.sums.windows import settle
from ullage.tables import FIELDS, JOBS, SETTLED, Flag, samples
from ullage.views.text import text

DAY = 86_400_000
START = 20_000 * DAY  # 2024-10-04 00:00 UTC
HOUR = 3_600_000


def made(times: Any, gpus: Any = ("a",), **columns: Any) -> pa.Table:
    """Samples of each GPU at each time (ms after START), with a tensor activity that tells rows apart."""
    time = np.repeat(np.asarray(times, np.int64), len(gpus))
    gpu = list(gpus) * len(times)
    activity = np.asarray([((t // 1000 + 7 * ord(g[-1])) % 997) / 997 for t, g in zip(time.tolist(), gpu, strict=True)], np.float32)
    counter = pa.array((time + 10**9) // 3)
    known = {"time": time + START, "gpu": pa.array(gpu, pa.string()), "tensor_active": activity, "tensor_cycles": counter} | columns
    return pa.Table.from_batches([samples(known)])


def every_30_s(first: int, last: int) -> range:
    return range(first, last, 30_000)


def content(store: Store) -> pa.Table:
    """All rows of a store in order, in the schema at rest."""
    table = store.samples().order_by(["gpu", "mig", "time"]).to_pyarrow()
    return pa.table({f.name: dictionaried(table[f.name], f.type) for f in SETTLED}, schema=SETTLED)


def on_disk(store: Store) -> list[dict[str, Any]]:
    """All rows of a store in order, read without DuckDB, which takes a while to start."""
    parts = [read_part(store._folder, part) for part in store.manifest().parts]
    return sorted(pa.concat_tables(parts).to_pylist(), key=lambda r: (r["gpu"], r["mig"] or "", r["time"]))


def dictionaried(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)


def plain(table: pa.Table, without: int = 0) -> list[dict[str, Any]]:
    rows = table.to_pylist()
    for row in rows:
        row["flags"] &= ~without
    return rows


def files(store: Store) -> set[str]:
    return {p.relative_to(store.path).as_posix() for p in store.path.rglob("*.parquet")}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


# --- in and out ---


def test_what_goes_in_comes_out_settled_and_sorted(store: Store) -> None:
    rows = made(every_30_s(0, HOUR), ("b", "a"), job=pa.array(["x"] * 240), mig=pa.array([None, "1g.10gb/7"] * 120))
    done = store.append(rows)
    assert (done.rows_new, done.rows_changed, done.rows_known, done.parts) == (240, 0, 0, 1)
    assert plain(content(store)) == plain(settle(rows))


def test_an_empty_store_answers_with_no_rows(store: Store) -> None:
    assert store.samples().count().to_pyarrow().as_py() == 0
    assert store.samples(["time", "sm_clock"]).to_pyarrow().column_names == ["time", "sm_clock"]
    assert store.window() is None and store.jobs().num_rows == 0 and store.info().rows == 0
    assert store.append([]).rows_new == 0


def test_the_same_rows_again_change_nothing(store: Store) -> None:
    rows = made(every_30_s(0, HOUR), ("a", "b"))
    store.append(rows)
    before, manifest = files(store), store.manifest()
    again = store.append(rows.slice(17, 100))
    assert (again.rows_new, again.rows_known, again.parts) == (0, 100, 0)
    assert (files(store), store.manifest()) == (before, manifest)


def test_copies_that_disagreed_are_known_when_they_come_again(store: Store) -> None:
    first, second = made([0], power=pa.array([300.0])), made([0], power=pa.array([400.0]), job=pa.array(["x"]))
    store.append(pa.concat_tables([first, second]))
    manifest = store.manifest()
    assert store.append(second).rows_known == 1 and store.append(first).rows_known == 1
    assert store.manifest() == manifest
    assert content(store)["flags"].to_pylist() == [Flag.COPIED | Flag.CONFLICT]


def test_rows_are_split_by_day_and_the_day_before_gives_the_first_span(store: Store) -> None:
    rows = made(every_30_s(DAY - HOUR, DAY + HOUR), ("a", "b"))
    assert store.append(rows).parts == 2
    assert [p.day for p in store.manifest().parts] == ["2024-10-04", "2024-10-05"]
    assert plain(content(store)) == plain(settle(rows))


def test_a_later_append_looks_back_at_the_stored_rows(store: Store) -> None:
    # a counter grows across the seam, and a reading that repeats keeps its run
    rows = made(every_30_s(DAY - HOUR, DAY + HOUR), ("a", "b"), tensor_active=np.full(480, 0.5, np.float32))
    for cut in range(0, 480, 46):  # 23 scrapes of 2 GPUs
        store.append(rows.slice(cut, 46))
    assert plain(content(store)) == plain(settle(rows))


def test_pieces_that_cut_a_scrape_in_two_rewrite_nothing(store: Store) -> None:
    rows = made(every_30_s(0, HOUR), ("a", "b", "c"))
    done = store.append(rows.to_batches(max_chunksize=50), chunk_rows=100)
    assert done.rows_new == 360 and store.manifest().dead == ()
    assert plain(content(store)) == plain(settle(rows))


def test_more_devices_than_a_piece_holds_are_stored_too(store: Store) -> None:
    rows = made([0, 30_000], [f"{n:03}" for n in range(80)])
    store.append(rows, chunk_rows=20)
    assert plain(content(store)) == plain(settle(rows))


def test_what_came_before_a_source_failed_is_stored(store: Store) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from made([0, 30_000]).to_batches()
        raise UllageError("the server stopped answering")

    with pytest.raises(UllageError, match="stopped answering"):
        store.append(failing())
    assert content(store).num_rows == 2


def test_the_gap_limit_can_be_given(store: Store) -> None:
    store.append(made([0, 300_000, 600_000]), gap_ms=90_000)
    assert content(store)["span_ms"].to_pylist() == [90_000] * 3


def test_the_window_and_the_counts_come_from_the_manifest(store: Store) -> None:
    store.append(made(every_30_s(DAY - 60_000, DAY + 60_000), ("a", "b")))
    info = store.info()
    assert store.window() == (START + DAY - 60_000, START + DAY + 30_000)
    assert (info.rows, info.devices, info.parts, info.days) == (8, 2, 2, {"2024-10-04": 4, "2024-10-05": 4})
    assert info.bytes > 0


def test_since_and_until_choose_samples_that_speak_for_the_window(store: Store) -> None:
    store.append(made(every_30_s(0, 4 * 30_000)))  # at 0, 30, 60 and 90 s
    # 30 s to 90 s: the sample at 30 s speaks for what came before, the one at 90 s for the last 30 s
    table = store.samples(["time"], since=START + 30_000, until=START + 90_000)
    assert [t.timestamp() * 1000 - START for t in table.order_by("time").to_pyarrow()["time"].to_pylist()] == [60_000, 90_000]
    assert store.samples(since=START + DAY).count().to_pyarrow().as_py() == 0


def test_an_unknown_column_is_named_with_the_nearest(store: Store) -> None:
    with pytest.raises(UllageError, match="no column 'sm_clok'") as caught:
        store.samples(["sm_clok"])
    assert "sm_clock" in caught.value.hint


def test_a_folder_with_signs_that_mean_something_to_a_pattern_is_read(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a [1]*?'s", create=True)
    store.append(made([0]))
    assert content(store).num_rows == 1


# --- late data ---


def test_late_rows_join_the_stored_ones_and_touch_only_their_part(store: Store) -> None:
    rows = made(every_30_s(0, 3 * HOUR), ("a", "b"))
    late = [i for i in range(rows.num_rows) if i % 2 and HOUR <= (i // 2) * 30_000 < 2 * HOUR]  # GPU b, the second hour
    rest = [i for i in range(rows.num_rows) if i not in set(late)]
    # a 30 min part ends where the next begins
    for start in range(0, len(rest), 100):
        store.append(rows.take(rest[start : start + 100]))
    untouched = [p for p in store.manifest().parts if p.last < START + HOUR - 60_000 or p.first > START + 2 * HOUR + 60_000]
    done = store.append(rows.take(late))
    assert done.rows_new == len(late)
    assert untouched and set(untouched) <= set(store.manifest().parts)
    assert plain(content(store), Flag.REORDERED) == plain(settle(rows))


def test_a_second_field_completes_stored_rows(store: Store) -> None:
    activity = made(every_30_s(0, HOUR), ("a", "b"))
    clock = made(every_30_s(0, HOUR), ("a", "b"), tensor_active=pa.nulls(240), tensor_cycles=pa.nulls(240), sm_clock=np.full(240, 1.4e9))
    store.append(activity)
    done = store.append(clock)
    assert (done.rows_new, done.rows_changed) == (0, 240)
    assert plain(content(store)) == plain(settle(pa.concat_tables([activity, clock])))
    assert store.append(clock).rows_known == 240


def test_rows_before_the_stored_ones_shorten_the_first_span(store: Store) -> None:
    # stored alone, the sample at 60 s stands for 30 s; when the one at 50 s comes in, for 10
    late, early = made([60_000]), made([50_000])
    store.append(late)
    store.append(early)
    assert [r["span_ms"] for r in plain(content(store))] == [10_000, 10_000]
    assert plain(content(store), Flag.REORDERED) == plain(settle(pa.concat_tables([early, late])))


def test_a_day_stored_after_the_next_one_gives_that_its_predecessor(store: Store) -> None:
    rows = made(every_30_s(DAY - HOUR, DAY + HOUR), ("a", "b"))
    for half in (rows.slice(240), rows.slice(0, 240)):
        store.append(half)
    assert plain(content(store), Flag.REORDERED) == plain(settle(rows))


@st.composite
def deliveries(draw: st.DrawFn) -> list[list[int]]:
    """Row numbers of a small recording, dealt out to a few appends, some of them several times."""
    owners = draw(st.lists(st.integers(0, 3), min_size=48, max_size=48))
    appends = [[row for row, owner in enumerate(owners) if owner == n] for n in range(4)]
    again = draw(st.lists(st.integers(0, 47), max_size=10))
    return [draw(st.permutations(rows)) for rows in (*appends, again) if rows]


@settings(max_examples=10, deadline=None)
@given(deliveries(), st.integers(5, 60), st.booleans())
def test_no_order_of_delivery_changes_what_is_stored(
    tmp_path_factory: Any, dealt: list[list[int]], chunk_rows: int, compacted: bool
) -> None:
    # 3 GPUs, 8 times around midnight, each sample in two halves: activity and clock
    times = [DAY + 10_000 * n for n in range(-4, 4)]
    activity = made(times, ("a", "b", "c"))
    clock = made(times, ("a", "b", "c"), tensor_active=pa.nulls(24), tensor_cycles=pa.nulls(24), sm_clock=(1 + np.arange(24)) * 1e8)
    rows = pa.concat_tables([activity, clock])
    store = Store.open(tmp_path_factory.mktemp("dealt") / "store", create=True)
    for delivery in dealt:
        store.append(rows.take(delivery), chunk_rows=chunk_rows)
        if compacted:
            store.compact(part_rows=20)
    stored, expected = on_disk(store), plain(settle(rows))
    for row in (*stored, *expected):
        row["flags"] &= ~(Flag.REORDERED | Flag.COPIED)
        if row["time"].timestamp() * 1000 == START + times[0]:
            row["span_ms"] = 0  # the first sample stands for the usual interval, of what was known when it came in
    assert stored == expected


def test_a_late_value_reaches_the_row_behind_it_though_another_device_moved_the_rows_between(store: Store) -> None:
    # device b: 0 s without counters, 10 s in a part of its own, 20 s joined to the first part by device a's late row
    store.append(made([0], ("a", "b"), tensor_cycles=pa.nulls(2)))
    store.append(made([10_000], ("b",)))
    late = pa.concat_tables([made([-10_000], ("a",)), made([20_000], ("b",))])
    store.append(late)
    store.append(made([0], ("b",)))
    everything = pa.concat_tables([made([0], ("a",), tensor_cycles=pa.nulls(1)), late, made([0, 10_000], ("b",))])
    assert [row["tensor_cycles_delta"] for row in on_disk(store)] == [row["tensor_cycles_delta"] for row in plain(settle(everything))]


# --- upkeep ---


def test_compaction_leaves_the_rows_as_they_are_in_few_parts(store: Store) -> None:
    rows = made(every_30_s(0, 4 * HOUR), ("a", "b", "c", "d"))
    for start in range(0, rows.num_rows, 240):
        store.append(rows.slice(start, 240))
    before = content(store)
    kept = store.compact(part_rows=1000, grace_ms=0)  # 1,920 rows: two parts of two GPUs each
    assert (kept.parts_before, kept.parts_after, kept.rows_dropped, kept.files_removed) == (8, 2, 0, 16)
    assert content(store).equals(before)
    assert files(store) == {name for p in store.manifest().parts for name in (p.file, p.tail)}
    assert store.compact(part_rows=1000).parts_after == 2  # once is enough


def test_replaced_files_wait_for_their_readers(tmp_path: Path) -> None:
    clock = [0]
    store = Store.open(tmp_path / "store", create=True, now=lambda: clock[0])
    for hour in range(3):
        store.append(made(every_30_s(hour * HOUR, (hour + 1) * HOUR)))
    reader = store.samples()
    assert store.compact().files_removed == 0
    assert reader.count().to_pyarrow().as_py() == 360  # the files of the query that began before are still there
    clock[0] = 2 * HOUR
    assert store.compact().files_removed == 6
    assert store.manifest().dead == ()


def test_retention_counts_from_the_newest_sample(store: Store) -> None:
    for day in range(5):
        store.append(made(every_30_s(day * DAY, day * DAY + HOUR)))
    kept = store.retain(2, grace_ms=0)
    # the newest sample is at day 4, 00:59:30; two days before that is day 2, 00:59:30: day 2 still reaches it
    assert [p.day for p in store.manifest().parts] == ["2024-10-06", "2024-10-07", "2024-10-08"]
    assert (kept.rows_dropped, kept.files_removed) == (240, 4)
    assert content(store).num_rows == 360


@pytest.mark.parametrize(("ahead", "said"), [(0, False), (HOUR, False), (HOUR + 1, True), (400 * DAY, True)])
def test_one_host_whose_clock_is_ahead_drops_nobodys_samples(tmp_path: Path, ahead: int, said: bool) -> None:
    now = START + 5 * DAY
    store = Store.open(tmp_path / "store", create=True, now=lambda: now)
    for day in range(5):
        store.append(made(every_30_s(day * DAY, day * DAY + HOUR)))
    store.append(made([5 * DAY + ahead], gpus=("b",)))
    ended = {name: datetime.fromtimestamp((START + day * DAY) / 1000, UTC) for name, day in (("old", 1), ("new", 4))}
    store.add_jobs(records(*({"job": name, "end": end} for name, end in ended.items())))
    kept = store.retain(2, grace_ms=0)
    # two days before now is day 3, 00:00: days 3, 4, and what is ahead, stay
    assert sorted({p.first for p in store.manifest().parts}) == [START + day for day in (3 * DAY, 4 * DAY, 5 * DAY + ahead)]
    assert kept.newest_ahead == (START + 5 * DAY + ahead if said else None)
    assert store.jobs()["job"].to_pylist() == ["new"]
    assert ("the clock of its host is wrong" in text(retained_view(RetainedStore(kept)))) == said


def test_retention_of_no_day_at_all_is_refused(store: Store) -> None:
    with pytest.raises(UllageError, match="0 days can't be kept"):
        store.retain(0)


def test_leftovers_of_a_killed_process_are_swept_out(store: Store) -> None:
    store.append(made([0]))
    for name in (
        "samples/day=2024-10-04/.99.tmp",
        "samples/day=2024-10-04/part-0123456789abcdef.parquet",
        "tails/part-0123456789abcdef.parquet",
    ):
        (store.path / name).write_bytes(b"half")
    assert content(store).num_rows == 1
    assert store.compact().files_removed == 3


# --- jobs ---


def records(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), JOBS)


def test_job_records_are_merged_and_the_later_value_wins(store: Store) -> None:
    start, end = datetime(2024, 10, 4, tzinfo=UTC), datetime(2024, 10, 5, tzinfo=UTC)
    assert store.add_jobs(records({"job": "1", "host": "n1", "start": start, "user": "ann"}, {"job": "2"})) == 2
    assert store.add_jobs(records({"job": "1", "host": "n1", "start": start, "end": end, "mfu": 0.4})) == 2
    row = store.jobs().to_pylist()[0]
    assert (row["user"], row["end"], row["mfu"]) == ("ann", end, 0.4)
    assert store.info().jobs == 2


def test_retention_drops_jobs_that_ended_before(store: Store) -> None:
    store.append(made([10 * DAY]))
    old, new = (datetime.fromtimestamp((START + day * DAY) / 1000, UTC) for day in (1, 9))
    store.add_jobs(records({"job": "old", "end": old}, {"job": "new", "end": new}, {"job": "running"}))
    store.retain(5)
    assert sorted(store.jobs()["job"].to_pylist()) == ["new", "running"]


# --- one writer, and what can be damaged ---


def test_a_second_writer_waits_and_then_says_who_is_in_the_way(store: Store) -> None:
    said: list[str] = []
    second = Store.open(store.path, wait_s=0.1, say=said.append)
    with locked(store.path / "lock", 0, said.append), pytest.raises(UllageError, match="another process has been writing"):
        second.append(made([0]))
    assert said == [f"another process is writing to {store.path}; waiting"]
    assert second.append(made([0])).rows_new == 1


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_one_clear_error(store: Store, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(UllageError) as caught:
        store.append(made([0]))
    assert caught.value.problem == f"the file system of the store {store.path} gives no locks ({os.strerror(code).lower()})"
    assert "Lustre with -o flock" in caught.value.hint
    assert store.samples().count().to_pyarrow().as_py() == 0  # reading needs none


def test_another_error_of_a_lock_is_not_taken_for_a_file_system_without(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(OSError, match="Bad file descriptor"):
        store.append(made([0]))


def test_readers_do_not_mind_the_lock(store: Store) -> None:
    store.append(made([0]))
    with locked(store.path / "lock", 0, print):
        assert content(Store.open(store.path)).num_rows == 1


def test_where_there_is_no_store_one_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(UllageError, match="there is no store at"):
        Store.open(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UllageError, match=r"holds other files \(notes.txt\)"):
        Store.open(tmp_path, create=True)
    with pytest.raises(UllageError, match="is a file, and a store is a folder"):
        Store.open(tmp_path / "notes.txt", create=True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is damaged"),
        (b'{"version": 1, "parts": [', "is damaged"),
        (b'{"version": 1, "parts": [{"file": 3}]}', "is damaged"),
        (b'{"version": 2}', "has version 2"),
        (
            b'{"version": 1, "parts": [{"file": "samples/day=x/../../etc", "day": "",'
            b' "rows": 1, "bytes": 1, "first": 1, "last": 1, "sha256": ""}]}',
            "is not a file of a store",
        ),
    ],
)
def test_a_damaged_manifest_is_named(store: Store, content: bytes, problem: str) -> None:
    (store.path / "manifest.json").write_bytes(content)
    with pytest.raises(UllageError, match=problem) as caught:
        Store.open(store.path)
    assert "manifest.json" in caught.value.problem


def test_a_missing_or_cut_part_is_named(store: Store) -> None:
    store.append(made([0]))
    part = store.path / store.manifest().parts[0].file
    whole = part.read_bytes()
    part.write_bytes(whole[:-7])
    with pytest.raises(UllageError, match=rf"{part.name} has [\d,]+ bytes where [\d,]+ were written"):
        Store.open(store.path)
    part.unlink()
    with pytest.raises(UllageError, match=rf"{part.name} is missing"):
        Store.open(store.path)


def test_a_part_that_was_changed_is_found_by_its_hash(store: Store) -> None:
    store.append(made([0, 60_000]))
    store.verify()
    part = store.path / store.manifest().parts[0].file
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(UllageError, match=rf"{part.name} is not as it was written"):
        Store.open(store.path).verify()


def test_a_part_damaged_inside_is_named_when_late_rows_need_it(store: Store) -> None:
    store.append(made([0, 60_000]))
    part = store.path / store.manifest().parts[0].file
    part.write_bytes(b"\0" * part.stat().st_size)
    with pytest.raises(UllageError, match=rf"{part.name} is not as it was written"):
        store.append(made([30_000]))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_refuses_loses_nothing_that_was_stored(store: Store, monkeypatch: pytest.MonkeyPatch, call: str, code: int) -> None:
    rows = made(every_30_s(0, HOUR))
    store.append(rows.slice(0, 60))
    before = content(store)

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(UllageError, match="nothing more can be stored in") as caught:
            store.append(rows)
    assert "nothing that was stored is lost" in caught.value.hint
    assert not list(store.path.rglob("*.tmp"))
    assert content(Store.open(store.path)).equals(before)
    store.append(rows)
    assert plain(content(store)) == plain(settle(rows))


# --- settled files that are no store ---


def test_a_wide_file_is_asked_in_place(tmp_path: Path) -> None:
    rows = settle(made(every_30_s(0, HOUR), ("a", "b")))
    pq.write_table(rows, tmp_path / "day.parquet")
    opened = open_settled(tmp_path / "day.parquet")
    assert opened.window() == (START, START + HOUR - 30_000)
    assert opened.samples().count().to_pyarrow().as_py() == 240
    assert opened.samples(["span_ms"]).span_ms.sum().to_pyarrow().as_py() == 240 * 30_000


def test_columns_that_a_wide_file_lacks_are_null(tmp_path: Path) -> None:
    few = settle(made([0], job=pa.array(["x"]))).select(["time", "gpu", "job", "tensor_active", "span_ms"])
    pq.write_table(few.set_column(3, "tensor_active", few["tensor_active"].cast(pa.float64())), tmp_path / "few.parquet")
    row = open_settled(tmp_path / "few.parquet").samples().to_pyarrow().to_pylist()[0]
    assert (row["sm_clock"], row["flags"], row["sharers"], row["tensor_cycles_delta"]) == (None, 0, 1, None)


def test_a_pattern_opens_several_files(tmp_path: Path) -> None:
    for n in range(3):
        pq.write_table(settle(made([n * DAY])), tmp_path / f"day-{n}.parquet")
    assert open_settled(tmp_path / "day-*.parquet").window() == (START, START + 2 * DAY)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (pa.table({"time": [1], "gpu": ["a"]}), "lacks the column span_ms"),
        (pa.table({"time": [1], "gpu": ["a"], "span_ms": [1]}), "is int64, not a timestamp"),
        (None, "is no Parquet file"),
    ],
)
def test_a_file_that_is_not_settled_samples_is_refused(tmp_path: Path, table: pa.Table | None, problem: str) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("<html>") if table is None else pq.write_table(table, path)
    with pytest.raises(UllageError, match=problem):
        open_settled(path)


def test_a_settled_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UllageError, match=r"there is no file 'gone-\*.parquet'"):
        open_settled("gone-*.parquet")


# --- size, and the commands ---


def test_realistic_samples_take_less_than_4_bytes_a_field(store: Store) -> None:
    random = np.random.default_rng(7)
    gpus, times = 50, 1200
    rows = gpus * times
    busy = np.repeat(random.random((times // 60, gpus)) < 0.8, 60, axis=0).reshape(-1)
    gauge = np.round(np.where(busy, np.clip(random.normal(0.5, 0.05, rows), 0, 1), 0), 6).astype(np.float32)
    clock = np.where(busy, np.clip(np.round(random.normal(1352e6, 32e6, rows) / 15e6) * 15e6, 1201e6, 1558e6), 1980e6).astype(np.float32)
    power = np.round(np.where(busy, random.normal(600, 30, rows), 110), 3).astype(np.float32)
    time = np.repeat(np.arange(times, dtype=np.int64) * 30_000 + START, gpus) + random.integers(0, 400, rows)
    gpu = pa.array([f"GPU-{n:08x}-1111-2222-3333-{n * 7919:012x}" for n in range(gpus)] * times)
    fields = {"tensor_active": gauge, "sm_active": gauge * 1.3, "gr_active": gauge * 1.5, "sm_clock": clock, "power": power}
    store.append(pa.Table.from_batches([samples({"time": time, "gpu": gpu, "gpu_util": np.where(busy, 1.0, 0.0), **fields})]))
    size = sum(p.stat().st_size for p in store.path.rglob("*") if p.is_file())
    assert size / (rows * 6) < 4
    assert set(fields) <= set(FIELDS)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(question_or_group("store"), arguments)
    return result.exit_code, result.output


def test_the_info_command_answers_in_its_first_line(store: Store) -> None:
    store.append(made(every_30_s(DAY - 60_000, DAY + 60_000), ("a", "b")))
    code, text = run("info", str(store.path))
    assert code == 0
    assert text.splitlines()[0].split("  ")[0] == "8 samples of 2 devices"
    assert text.splitlines()[0].endswith("  2024-10-04 23:59 to 2024-10-05 00:00 UTC")
    assert "2024-10-04" in text and "2 parts" in text
    code, text = run("info", str(store.path), "--json")
    assert '"devices": 2' in text


def test_the_compact_and_retain_commands_say_what_they_did(store: Store) -> None:
    for day in range(3):
        for half in (0, 1):
            store.append(made(every_30_s(day * DAY + half * HOUR, day * DAY + (half + 1) * HOUR)))
    assert run("compact", str(store.path))[1].splitlines()[0].startswith("6 parts became 3")
    # the newest sample is at day 2, 01:59:30: day 1 reaches to 01:59:30 and stays
    assert run("retain", str(store.path), "--keep", "1d")[1].splitlines()[0] == "240 samples dropped with 1 of 3 parts"
    with pytest.raises(UllageError, match="'soon' is not a span of time"):
        CliRunner().invoke(question_or_group("store"), ["retain", str(store.path), "--keep", "soon"], catch_exceptions=False)
