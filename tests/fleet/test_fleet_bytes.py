"""Asked twice, in whatever order files come and threads finish, a report has the same bytes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.conftest import T0
from tests.seeds import examples
from ullage.render import fleet_document as as_json
from ullage.render.fleet import view
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.store.reading import SettledFiles
from ullage.tables import SETTLED
from ullage.views.text import text as as_text

ROWS, DEVICES = 24_000, 12


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four files of small row groups, which threads share out; readings with all the digits that a float has."""
    drawn = np.random.default_rng(5)
    gpu = np.arange(ROWS) % DEVICES
    time = T0 + np.arange(ROWS) // DEVICES * 30_000 + drawn.integers(0, 20_000, ROWS)
    engine = drawn.random(ROWS)
    readings = {"gr_active": engine, "sm_active": engine * 0.9, "tensor_active": engine * 0.37, "gpu_util": drawn.random(ROWS)}
    readings |= {"sm_clock": drawn.uniform(1.1e9, 1.9e9, ROWS), "power": drawn.uniform(70, 700, ROWS)}
    columns = readings | {"span_ms": drawn.integers(20_000, 40_000, ROWS), "flags": np.zeros(ROWS), "sharers": np.ones(ROWS)}
    columns |= {
        "gpu": np.array([f"GPU-{n}" for n in range(DEVICES)])[gpu],
        "host": np.array([f"node-{n // 4}" for n in range(DEVICES)])[gpu],
        "job": np.array([f"{n // 6}" for n in range(DEVICES)])[gpu],
        "model": np.full(ROWS, "NVIDIA H100 80GB HBM3"),
        "time": time.astype("datetime64[ms]"),
    }
    arrays = [pa.array(columns[f.name]).cast(f.type) if f.name in columns else pa.nulls(ROWS, f.type) for f in SETTLED]
    table = pa.Table.from_arrays(arrays, schema=SETTLED)
    folder, made = tmp_path_factory.mktemp("days"), []
    for number, rows in enumerate(np.array_split(drawn.permutation(ROWS), 4)):
        made.append(folder / f"{number}.parquet")
        parquet.write_table(table.take(pa.array(rows)), made[-1], row_group_size=2048)
    return made


def written(files: list[Path], by: str) -> tuple[str, str]:
    source = SettledFiles(files)
    source._connection.con.execute("SET threads = 4")
    report = fleet(source.samples(), None, FleetRequest(by=by, prices={"": 2.0}))
    return json.dumps(as_json.record(report)), as_text(view(report))


@pytest.mark.parametrize("by", ["job", pytest.param("hour", marks=pytest.mark.full)])
def test_a_report_has_the_same_bytes_each_time_it_is_asked_for_and_in_every_order_of_files(files: list[Path], by: str) -> None:
    orders = [files, files, files, files[::-1], *list(itertools.permutations(files))[5 : 24 : examples(12, 6)]]
    assert len({written(list(order), by) for order in orders}) == 1
