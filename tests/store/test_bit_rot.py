"""A bit that flips on a disk is one clear error that names the file, and never another sum."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.command_line import ask
from ullage import checked_parquet
from ullage.errors import UllageError
from ullage.intake import opened
from ullage.problems import Problems
from ullage.sources.jobs.job import read_jobs
from ullage.sources.source import read_samples
from ullage.store.manifest import StorePart
from ullage.store.reading import open_settled
from ullage.store.store import Store
from ullage.sums.windows import settle
from ullage.tables import JOBS, samples

T = 1_786_320_000_000  # 2026-08-10T00:00:00Z
DAY = 86_400_000


def made(first: int = 0, rows: int = 2000, gpus: int = 4) -> pa.Table:
    """Samples of every kind of column: words, times, gauges in bytes of their own, few values, counters."""
    step, gpu = np.divmod(np.arange(rows) + first * gpus, gpus)
    draw = np.random.default_rng(first)
    return pa.Table.from_batches(
        [
            samples(
                {
                    "time": T + 30_000 * (step + 1),
                    "gpu": [f"GPU-{n}" for n in gpu],
                    "host": [f"node-{n}" for n in gpu % 2],
                    "model": ["NVIDIA H100 80GB HBM3"] * rows,
                    "job": [f"job-{n}" for n in (step // 200) % 3],
                    "tensor_active": draw.random(rows),
                    "sm_active": draw.random(rows),
                    "gpu_util": draw.integers(0, 101, rows) / 100,
                    "sm_clock": draw.integers(80, 132, rows) * 15e6,
                    "power": 300 + 100 * draw.random(rows),
                    "energy": 1e6 + 9e3 * step,
                    "tensor_cycles": pa.array(10**12 + 10**9 * step + draw.integers(0, 10**8, rows)),
                }
            )
        ]
    )


# --- where the pages of a file lie ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """A page: which column, of what kind (dictionary, data), and where its header, its content and its end are."""

    column: str
    kind: str
    start: int
    content: int
    end: int


def pages(path: Path) -> Iterator[Page]:
    """The pages of a Parquet file, found by its footer and their headers (Thrift's compact protocol)."""
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            at = min(offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset)
            end = at + chunk.total_compressed_size
            while at < end:
                header, content = structure(data, at)
                assert 4 in header, "a page without a checksum"
                kind = {0: "data", 2: "dictionary", 3: "data"}[header[1]]
                yield Page(chunk.path_in_schema, kind, at, content, content + header[3])
                at = content + header[3]
            assert at == end


def structure(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """The numbers of a Thrift structure by field, and where it ends; what is inside other structures is passed over."""
    found, field = {}, 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        assert step, "a long field header"
        field += step
        if kind in (1, 2):
            continue
        if kind == 12:
            _, at = structure(data, at)
        elif kind == 8:
            length, at = varint(data, at)
            at += length
        else:
            number, at = varint(data, at)
            found[field] = (number >> 1) ^ -(number & 1)
    return found, at + 1


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 128:
            return number, at


def places(path: Path, each: int) -> list[tuple[str, int, int]]:
    """Some (what, byte, bit) of each kind of page of each column, in the content and in the header, and of the footer."""
    draw, found = np.random.default_rng(0), []
    for page in pages(path):
        for _ in range(each):
            found.append((f"{page.column} {page.kind} content", int(draw.integers(page.content, page.end)), int(draw.integers(8))))
            found.append((f"{page.column} {page.kind} header", int(draw.integers(page.start, page.content)), int(draw.integers(8))))
    return found


def flipped(path: Path, byte: int, bit: int) -> bytes:
    """Flip one bit of a file; give what it held before."""
    whole = path.read_bytes()
    data = bytearray(whole)
    data[byte] ^= 1 << bit
    path.write_bytes(data)
    return whole


def silent(path: Path, where: list[tuple[str, int, int]], answer: Callable[[], Any]) -> list[str]:
    """The places where a flip changes the answer without an error; an error must be ours and name the file."""
    good, bad = answer(), []
    for what, byte, bit in where:
        whole = flipped(path, byte, bit)
        try:
            if answer() != good:
                bad.append(f"{what}, byte {byte}, bit {bit}")
        except UllageError as error:
            assert path.name in str(error) and error.hint, error
        finally:
            path.write_bytes(whole)
    return bad


# --- a store ------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "store"
    store = Store.open(folder, create=True)
    store.append(made())
    store.add_jobs(pa.Table.from_pylist([{"job": f"job-{n}", "gpus": 2, "mfu": 0.3 + n / 10} for n in range(50)], JOBS))
    return folder


@pytest.fixture
def store(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "store")
    return tmp_path / "store"


def part_of(store: Path) -> StorePart:
    [part] = Store.open(store).manifest().parts
    return part


def sums(store: Path) -> Any:
    table = Store.open(store).samples()
    of = {name: table[name].sum() for name in ("tensor_active", "sm_active", "sm_clock", "power", "gpu_util", "energy_delta", "span_ms")}
    return table.group_by(["gpu", "host", "job"]).aggregate(**of).order_by(["gpu", "host", "job"]).to_pyarrow().to_pylist()


def test_no_bit_of_a_part_changes_a_sum_silently(store: Path) -> None:
    path = store / part_of(store).file
    where = places(path, each=2)
    kinds = {what.split(" ", 1)[1] for what, _, _ in where}
    assert kinds == {"dictionary content", "dictionary header", "data content", "data header"} and len(where) >= 60
    footer = int.from_bytes(path.read_bytes()[-8:-4], "little")
    size = path.stat().st_size
    where += [("footer", int(byte), int(byte) % 8) for byte in np.linspace(size - 8 - footer, size - 1, 20)]
    assert silent(path, where, lambda: sums(store)) == []


def test_the_error_names_the_file_and_says_what_to_do(store: Path) -> None:
    path = store / part_of(store).file
    page = next(page for page in pages(path) if page.column == "tensor_active" and page.kind == "data")
    flipped(path, (page.content + page.end) // 2, 3)
    said = ask("fleet", store)
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        f"ullage: the store's file {path} is not as it was written\n"
        "  bring it back from a backup, or remove its entry from manifest.json to go on without it\n"
    )


def test_a_damaged_part_that_a_window_leaves_out_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True)
    for day in range(2):
        store.append(made(first=day * DAY // 30_000, rows=400))
    first, second = store.manifest().parts
    flipped(store.path / first.file, 1000, 1)
    again = Store.open(store.path)
    assert again.samples(since=second.first - 1).count().to_pyarrow().as_py() == 400
    with pytest.raises(UllageError, match=re.escape(first.file)):
        again.samples()
    window = ("--since", "2026-08-11", "--until", "2026-08-12")
    assert ask("fleet", store.path, *window).code == 0 and ask("fleet", store.path).code == 1


def test_a_part_is_read_through_once_by_an_open_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    from ullage.store import manifest

    really = manifest.checksum_of
    monkeypatch.setattr(manifest, "checksum_of", lambda path: (looked.append(path), really(path))[1])
    one = Store.open(store)
    one.samples()
    one.samples(["time"])
    assert len(looked) == 1


def test_no_bit_of_a_tail_changes_a_later_span_or_growth_silently(store: Path, tmp_path: Path) -> None:
    tail = store / part_of(store).tail
    work = tmp_path / "work"

    def after() -> Any:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(store, work)
        (work / part_of(store).tail).write_bytes(tail.read_bytes())
        try:
            Store.open(work).append(made(first=500, rows=40))
        except UllageError as error:
            assert "is not as it was written" in error.problem
            raise
        return sums(work)

    where = places(tail, each=2)
    assert len(where) >= 60
    assert silent(tail, where[::4], after) == []


def test_a_damaged_part_is_not_written_anew_as_if_it_were_good(store: Path) -> None:
    Store.open(store).append(made(first=500, rows=400))
    parts = Store.open(store).manifest().parts
    flipped(store / parts[0].file, 5000, 2)
    for act in (lambda: Store.open(store).compact(), lambda: Store.open(store).append(made(first=100, rows=400).replace_schema_metadata())):
        with pytest.raises(UllageError, match="is not as it was written"):
            act()
    assert Store.open(store).manifest().parts == parts


def test_a_check_reads_parts_tails_and_job_records(store: Path) -> None:
    part = part_of(store)
    assert ask("store", "info", store, "--check").code == 0
    for name in (part.file, part.tail, "jobs.parquet"):
        page = next(pages(store / name))
        whole = flipped(store / name, page.content + 1, 0)
        said = ask("store", "info", store, "--check")
        assert said.code == 1 and Path(name).name in said.err and "Traceback" not in said.err
        (store / name).write_bytes(whole)


def test_a_store_of_an_older_release_has_only_the_hash_of_its_parts_and_is_read(store: Path) -> None:
    import json

    manifest = json.loads((store / "manifest.json").read_text())
    for part in manifest["parts"]:
        del part["tail_sha256"], part["xxh3"]
    (store / "manifest.json").write_text(json.dumps(manifest))
    assert Store.open(store).append(made(first=500, rows=40)).rows_new == 40
    old = next(part for part in Store.open(store).manifest().parts if not part.xxh3)
    flipped(store / old.file, 5000, 2)
    with pytest.raises(UllageError, match="is not as it was written"):
        Store.open(store).samples()


# --- every other file ---------------------------------------------------------------------------------------------------------------------


def contents(path: Path, least: int) -> list[tuple[str, int, int]]:
    """Places in the content of every page of a file, at least so many: a checksum is of what a page holds."""
    found = list(pages(path))
    draw = np.random.default_rng(1)
    each = -(-least // len(found))
    return [
        (f"{page.column} {page.kind}", int(draw.integers(page.content, page.end)), int(draw.integers(8)))
        for page in found
        for _ in range(each)
    ]


def rows_of(path: Path) -> Any:
    return [batch.to_pylist() for batch in read_samples(str(path))]


def test_no_bit_of_a_file_of_samples_is_taken_for_another_reading(tmp_path: Path) -> None:
    from ullage.live.sampling.readings_file import ParquetFile

    file = ParquetFile(tmp_path / "live.parquet")
    file.add(made(rows=400).to_batches())
    file.close()
    assert ask("simulate", "--gpus", "8", "--hours", "0.2", "--faults", "none", "--out", tmp_path / "fleet").code == 0
    assert ask("simulate", "job", "--out", tmp_path / "job").code == 0
    for path in (tmp_path / "live.parquet", tmp_path / "fleet" / "samples" / "fleet.parquet", tmp_path / "job" / "telemetry.parquet"):
        assert silent(path, contents(path, 60), lambda path=path: rows_of(path)) == []  # type: ignore[misc]


def test_no_bit_of_a_table_of_settled_samples_changes_a_sum_silently(tmp_path: Path) -> None:
    # what `ullage fleet --by sample` writes is asked where it lies, by DuckDB, which looks at no checksum
    store = Store.open(tmp_path / "store", create=True)
    store.append(made(rows=800))
    path = tmp_path / "settled.parquet"
    assert ask("fleet", store.path, "--by", "sample", "--out", path).code == 0

    def added() -> Any:
        with opened([str(path)]) as taken:
            table = taken.samples
            return table.aggregate(a=table.tensor_active.sum(), c=table.sm_clock.sum(), s=table.span_ms.sum()).to_pyarrow().to_pylist()

    assert silent(path, contents(path, 60), added) == []


def test_settled_samples_without_checksums_are_read_as_they_are(tmp_path: Path) -> None:
    table = settle(made(rows=400))
    pq.write_table(table, tmp_path / "plain.parquet")
    assert open_settled(tmp_path / "plain.parquet").samples().count().to_pyarrow().as_py() == 400


@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary first", "data first"])
def test_whether_a_file_has_checksums_is_told_from_its_first_page(tmp_path: Path, dictionary: bool) -> None:
    table = pa.table({"time": pa.array(range(100_000))})
    read: list[int] = []

    for checksums in (True, False):
        path = tmp_path / f"{checksums}.parquet"
        pq.write_table(table, path, write_page_checksum=checksums, use_dictionary=dictionary, compression="none")
        chunk = pq.read_metadata(path).row_group(0).column(0)
        read.append(checked_parquet._checksummed(path, chunk))
    assert read == [True, False]


def test_no_bit_of_job_records_is_taken_for_another_job(tmp_path: Path) -> None:
    rows = [{"job": f"job-{n}", "user": f"u{n % 7}", "host": f"n{n}", "index": n % 8, "mfu": n / 1000, "start": None} for n in range(500)]
    path = tmp_path / "jobs.parquet"
    checked_parquet.write_table(pa.Table.from_pylist(rows, JOBS), path)
    assert silent(path, contents(path, 60), lambda: read_jobs(str(path), Problems()).to_pylist()) == []


def test_no_bit_of_the_stores_job_records_is_taken_for_another_job(store: Path) -> None:
    path = store / "jobs.parquet"
    assert silent(path, contents(path, 60), lambda: Store.open(store).jobs().to_pylist()) == []


def test_no_bit_of_the_counters_beside_a_run_changes_its_sums(tmp_path: Path) -> None:
    from ullage.reports.trace import run_counters

    path = tmp_path / "telemetry-n1.parquet"
    checked_parquet.write_table(made(rows=400), path)
    good, caught = run_counters._read([path], ("time", "gpu", "tensor_active")), 0
    for what, byte, bit in contents(path, 60):
        whole = flipped(path, byte, bit)
        try:
            assert run_counters._read([path], ("time", "gpu", "tensor_active")) == good, what
        except UllageError:
            caught += 1
        path.write_bytes(whole)
    assert caught


def test_no_bit_of_sampled_program_counters_changes_a_count(tmp_path: Path) -> None:
    from tests.cupti.test_pc_sampling import _samples
    from ullage.cupti.pc_sampling.samples import read

    path = tmp_path / "step.parquet"
    _samples().write(path)
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["step.parquet"]
    assert silent(path, contents(path, 60), lambda: read(path).table.to_pylist()) == []


def test_nothing_of_ours_reads_or_writes_parquet_without_checksums() -> None:
    sources = Path(checked_parquet.__file__).parent
    pattern = re.compile(
        r"\b(?:pq|parquet|pyarrow\.parquet)\.(?:write_table|ParquetWriter|ParquetFile|read_table|ParquetDataset)\(|\.to_parquet\("
    )
    found = {path.relative_to(sources).as_posix() for path in sources.rglob("*.py") if pattern.search(path.read_text())}
    assert found == {"checked_parquet.py"}
