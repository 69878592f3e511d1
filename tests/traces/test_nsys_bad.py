"""Nsight Systems databases that are locked, damaged, empty, hostile or something else."""

from __future__ import annotations

import gzip
import sqlite3
import tempfile
from pathlib import Path

import pytest

from tests.traces.nsys_runs import BUSY, MPI, perfect, read, run_of, totals
from ullage.errors import UllageError
from ullage.simulate.traces.nsys import write
from ullage.traces.nsys.metrics import Counter, counters
from ullage.traces.nsys.nsys import recognise
from ullage.traces.trace import File, TraceOptions, recognised


def test_a_locked_file_in_a_folder_that_cant_be_written_is_read_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "read #only?%41"
    folder.mkdir()
    path = write(BUSY, folder / "a b.sqlite")
    before = path.read_bytes()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    folder.chmod(0o555)
    path.chmod(0o444)
    try:
        assert totals(run_of(read(path)[0])) == totals(perfect(BUSY))
        assert {file.name for file in folder.iterdir()} <= {"a b.sqlite", "a b.sqlite-journal"}  # the journal is the writer's
    finally:
        folder.chmod(0o755)
        writer.close()
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_not_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(UllageError, match="SQLite database without the tables of Nsight Systems"):
        recognised(path)


def test_a_compressed_database_is_told_to_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite.gz"
    path.write_bytes(gzip.compress(write(BUSY, tmp_path / "a.sqlite").read_bytes()))
    with pytest.raises(UllageError, match=r"(?s)compressed SQLite database.*gunzip"):
        read(path)


def test_a_file_that_is_no_database_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    assert recognise(File(path, b"{}")) == 0


def test_a_database_whose_first_page_is_broken_gives_one_clear_error(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite")
    whole = bytearray(path.read_bytes())
    whole[100:2000] = b"\x99" * 1900
    path.write_bytes(whole)
    with pytest.raises(UllageError, match="damaged SQLite database"):
        read(path)


def test_an_empty_capture_is_one_clear_error(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall():
            connection.execute(f'DELETE FROM "{name}"')
    with pytest.raises(UllageError, match=r"(?s)holds no event of a GPU, of MPI or of NVTX.*nsys profile"):
        read(path)


def test_a_damaged_page_leaves_the_rest_and_strict_refuses_it(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_MEMCPY'").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    whole = bytearray(path.read_bytes())
    whole[(root - 1) * size : root * size] = b"\xff" * size
    path.write_bytes(whole)
    capture, problems = read(path)
    assert "CUPTI_ACTIVITY_KIND_MEMCPY" in capture.recording.cut and "is damaged" in problems.notes[0]
    assert not len(capture.device.of("memcpy")) and len(capture.device.of("kernel", "collective")) == 3
    with pytest.raises(UllageError, match="damaged"):
        read(path, TraceOptions(strict=True))


def test_a_truncated_file_gives_what_came_before(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    whole, kept = path.read_bytes(), list[int]()
    for part in range(4096, len(whole), 4096):
        path.write_bytes(whole[:part])
        try:
            capture, problems = read(path)
            assert capture.recording.cut and "is damaged" in problems.notes[-1]
            kept.append(len(capture.device) + len(capture.calls) + len(capture.host))
        except UllageError as error:
            assert "damaged" in str(error) or "without the tables" in str(error)
    assert len(kept) > 5 and kept == sorted(kept)


def what_is_read(path: Path) -> object:
    """What a file gives: its totals, and whether it was whole; or the error, without the file's name."""
    try:
        capture, _ = read(path)
    except UllageError as error:
        return error.problem.replace(str(path), "").replace(path.name, "")
    return len(capture.device), len(capture.calls), len(capture.host), [*capture.recording.cut]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files without a name can't be opened again here")
def test_a_file_without_a_name_is_read_as_one_with_a_name(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    whole = path.read_bytes()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    logged, read_before = path.read_bytes(), set[object]()
    assert logged[18:20] == b"\2\2"
    for body in (whole, logged, *(whole[:size] for size in range(100, len(whole), 7 * 1024)), b"\x99".join((whole[:100], whole[101:]))):
        path.write_bytes(body)
        with tempfile.TemporaryFile() as nameless:
            nameless.write(body)
            nameless.flush()
            found = what_is_read(Path(f"/proc/self/fd/{nameless.fileno()}"))
        assert found == what_is_read(path)
        read_before.add(str(found))
    assert len(read_before) > 3


def test_a_view_in_place_of_a_table_is_never_run(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        endless = "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start, start AS end FROM n"
        connection.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}")
    assert not len(read(path)[0].device.of("kernel"))


def test_names_that_are_no_text_do_not_stop_the_reading(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'ff00fe' AS TEXT) WHERE id = 1")
        connection.execute("DELETE FROM StringIds WHERE id = 2")
        connection.execute("UPDATE NVTX_EVENTS SET text = CAST(x'c328' AS TEXT)")
    assert totals(run_of(read(path)[0]))[1] == totals(perfect(BUSY))[1]


def test_a_log_beside_the_file_is_said_to_be_unread(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite")
    path.with_name("a.sqlite-wal").write_bytes(b"x")
    assert "write-ahead log" in read(path)[1].notes[0]


def test_sampled_metrics_are_means_by_device(tmp_path: Path) -> None:
    # SMs active 40 and 60 per cent: 0.5; the sample before the session's begin doesn't count
    path = write(MPI, tmp_path / "a.sqlite")
    assert counters(path) == []
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER)")
        connection.execute(
            "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT)"
        )
        connection.executemany(
            "INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", [(-5, 257, 1, 99), (0, 257, 1, 40), (9, 257, 1, 60), (9, 258, 2, 1410)]
        )
        said = [(257, 0, "GA100", 1, "SMs Active [Throughput %]"), (258, 0, "GA100", 2, "GPC Clock Frequency [MHz]")]
        connection.executemany("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, ?, ?, ?)", said)
    assert counters(path) == [
        Counter("SMs Active [Throughput %]", 1, 0.5, 2, True),
        Counter("GPC Clock Frequency [MHz]", 2, 1410.0, 1, False),
    ]
