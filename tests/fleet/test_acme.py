"""AcmeTrace: a folder with one CSV per metric, and what can be said of its published quantile functions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources import acme
from ullage.sources.source import Options, Place, read_samples
from ullage.tables import SAMPLES

ROOT = Path(__file__).parents[2]
T = 1_688_169_600_000  # 2023-07-01 08:00:00+08:00


def read(folder: Path, options: Options | None = None, problems: Problems | None = None) -> list[dict]:
    batches = list(read_samples(str(folder), options or Options(), problems if problems is not None else Problems()))
    assert all(batch.schema == SAMPLES for batch in batches)
    table = pa.Table.from_batches(batches, SAMPLES)
    table = table.set_column(0, "time", table["time"].cast(pa.int64()))
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def write(folder: Path, name: str, cells: list[list[object]], heads: str = "Time,10.140.0.131-0,10.140.1.9-7") -> None:
    lines = [heads] + [f"2023-07-01 08:00:{15 * n:02}+08:00," + ",".join(map(str, row)) for n, row in enumerate(cells)]
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text("\n".join(lines) + "\n")


def test_a_folder_of_metrics_becomes_partial_samples_per_gpu(tmp_path):
    write(tmp_path, "PIPE_TENSOR_ACTIVE.csv", [[23.8, 0.0], [1.0, ""]])
    write(tmp_path, "FB_USED.csv", [[1024, 0]])
    write(tmp_path, "XID_ERRORS.csv", [[0, 31]])
    write(tmp_path, "ENC_UTIL.csv", [[0, 0]])
    problems = Problems()
    first = {"host": "10.140.0.131", "index": 0, "gpu": "10.140.0.131/0", "flags": 0}
    other = {"host": "10.140.1.9", "index": 7, "gpu": "10.140.1.9/7", "flags": 0}
    # 23.8 % is 0.238, 1024 MiB is 2^30 B; the empty cell makes no row
    assert read(tmp_path, problems=problems) == [
        first | {"time": T, "memory_used": 2.0**30},
        other | {"time": T, "memory_used": 0.0},
        first | {"time": T, "tensor_active": pytest.approx(0.238)},
        first | {"time": T + 15_000, "tensor_active": pytest.approx(0.01)},
        other | {"time": T, "tensor_active": 0.0},
        first | {"time": T, "xid": 0},
        other | {"time": T, "xid": 31},
    ]
    assert problems.dropped == {"files of metrics that Ullage does not keep": 1}


def test_a_share_that_never_passes_one_is_a_ratio_after_all(tmp_path):
    write(tmp_path, "SM_ACTIVE.csv", [[0.9, 0.25]])
    problems = Problems()
    assert [row["sm_active"] for row in read(tmp_path, problems=problems)] == pytest.approx([0.9, 0.25])
    assert problems.notes == ["SM_ACTIVE.csv holds ratios, not percent as AcmeTrace publishes; settled by magnitude"]


def test_gpu_util_is_percent_always(tmp_path):
    write(tmp_path, "GPU_UTIL.csv", [[1, 0]])
    assert [row["gpu_util"] for row in read(tmp_path)] == pytest.approx([0.01, 0])


def test_split_files_and_a_folder_per_cluster_are_read(tmp_path):
    write(tmp_path / "seren", "GPU_UTIL-2023-07-01.csv", [[50, 60]])
    write(tmp_path / "kalos", "GPU_UTIL.csv", [[70, 80]])
    assert [(row["cluster"], row["gpu_util"]) for row in read(tmp_path)] == [
        ("kalos", pytest.approx(0.7)),
        ("kalos", pytest.approx(0.8)),
        ("seren", pytest.approx(0.5)),
        ("seren", pytest.approx(0.6)),
    ]


def test_only_the_time_that_was_asked_for_is_kept(tmp_path):
    write(tmp_path, "POWER_USAGE.csv", [[100, 110], [200, 210]])
    assert [row["power"] for row in read(tmp_path, Options(since=T + 15_000))] == [200, 210]


def test_values_of_many_gpus_come_in_bounded_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("ullage.sources.rows.tabular.ROWS", 4)
    heads = "Time," + ",".join(f"10.0.0.1-{n}" for n in range(9))
    write(tmp_path, "GPU_TEMP.csv", [[30 + n for n in range(9)]] * 2, heads)
    place = Place(str(tmp_path), tmp_path)
    sizes = [batch.num_rows for batch in acme.read(place, Options(), Problems())]
    assert sizes == [4, 4, 4, 4, 2]  # two GPUs of two rows at a time


def test_a_damaged_file_is_counted_and_the_others_are_read(tmp_path):
    write(tmp_path, "GPU_TEMP.csv", [[30, 31]])
    write(tmp_path, "POWER_USAGE.csv", [[100, 110], [200]])
    problems = Problems()
    assert len(read(tmp_path, problems=problems)) == 4
    assert problems.dropped == {"lines with a wrong number of columns": 1}


def test_other_folders_are_left_to_other_readers(tmp_path):
    (tmp_path / "power.csv").write_text("time,gpu,power\n1700000000,0,300\n")
    assert acme.recognise(Place(str(tmp_path), tmp_path)) == 0
    assert [row["power"] for row in read(tmp_path)] == [300]


# --- the published quantiles


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acmetrace_benchmark", ROOT / "benchmarks" / "acmetrace.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shared_data() -> Path:
    folder = ROOT.parent / "shared" / "data"
    if not (folder / "acmetrace" / "acme_quantiles.csv").exists():
        pytest.skip("the AcmeTrace quantiles are not here: they are third-party data and no part of the repository")
    return folder


def test_the_mean_of_a_distribution_is_the_integral_of_its_quantiles():
    # evenly from 0 to 10: the mean is 5; three quarters at 0, then evenly to 8: 1/4 * 4 = 1
    assert benchmark().mean([0, 100], [0, 10]) == 5
    assert benchmark().mean([0, 75, 100], [0, 0, 8]) == 1


def test_the_published_quantiles_say_that_gpu_util_overstates_tensor_activity():
    found = benchmark().means(shared_data() / "acmetrace" / "acme_quantiles.csv")
    assert [found[c]["gpu_util_pct"] for c in ("Seren", "Kalos")] == pytest.approx([66.1, 69.8], abs=0.1)
    assert [found[c]["tensor_active_pct"] for c in ("Seren", "Kalos")] == pytest.approx([12.6, 11.7], abs=0.1)


def test_the_published_quantiles_are_no_telemetry():
    path = shared_data() / "acmetrace" / "acme_quantiles.csv"
    with pytest.raises(UllageError, match="holds quantile functions"):
        list(read_samples(str(path)))
