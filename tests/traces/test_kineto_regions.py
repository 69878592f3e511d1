"""A long profile read in regions gives what it gives in one piece; where a region isn't whole, it is read in one piece."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces import kineto
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.traces.json.regions import regions
from ullage.traces.kineto import regions as kineto_regions
from ullage.traces.trace import TraceOptions, recognised


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Read the regions of any file, however small, one after the other in this process; the numbers of regions read."""
    counts: list[int] = []

    def one_by_one(task, inputs, workers, done, *, with_this_process):
        assert with_this_process
        counts.append(len(inputs))
        return [task(each) for each in inputs]

    monkeypatch.setattr(kineto_regions, "WORTH", 0)
    monkeypatch.setattr(kineto_regions, "side_by_side", one_by_one)
    return counts


def rows(path: Path, workers: int) -> tuple[list[str], Recording]:
    trace, file = recognised(path)
    recording = Recording("a file")
    assert trace.read is not None
    batches: Iterator[pa.RecordBatch] = trace.read(file, recording, TraceOptions(workers=workers), Problems())
    return sorted(str(row) for batch in batches for row in batch.to_pylist()), recording


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("workers", [2, 3, 7])
def test_regions_give_the_same_rows_and_the_same_metadata(tmp_path, at_once, compact, workers):
    path = kineto.write(training(TrainingPlan(ranks=2, steps=2)), tmp_path, compact=compact)[0]
    expected, one = rows(path, 1)
    found, several = rows(path, workers)
    assert found == expected and several == one
    assert at_once and 1 < at_once[0] <= workers


def test_a_boundary_inside_a_name_is_found_out(tmp_path, at_once):
    # the middle of the file lies inside a name that looks like the end of one event and the begin of the next
    trap = '}, {"ph": "X", ' * 4000
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10.0, "dur": 5.0, "args": {"device": 0, "stream": 7}}
    path = tmp_path / "trap.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event, event | {"name": trap, "ts": 20.0}, event | {"ts": 30.0}]}))
    expected, _ = rows(path, 1)
    assert rows(path, 2)[0] == expected
    assert len(expected) == 3 and at_once == [2]


def test_a_damaged_file_is_read_in_one_piece(tmp_path, at_once):
    path = kineto.write(training(TrainingPlan(ranks=1, steps=2)), tmp_path)[0]
    text = path.read_bytes()
    path.write_bytes(text[: len(text) * 9 // 10])
    expected, one = rows(path, 1)
    found, several = rows(path, 2)
    assert found == expected and several.cut == one.cut != ""
    assert at_once == [2]


def test_regions_cover_every_byte_between_elements_once(tmp_path):
    path = tmp_path / "a.json"
    elements = [f'{{"ph": "X", "ts": {n}}}' for n in range(1000)]
    path.write_text("[" + ", ".join(elements) + "]")
    found = regions(path, 1, 5)
    assert len(found) == 5
    texts = []
    for region in found:
        with region.open() as file:
            texts.append(file.read().decode())
    assert [element for text in texts for element in json.loads("[" + text)] == json.loads(path.read_text())


def test_real_processes_read_a_file_too(tmp_path, monkeypatch):
    path = kineto.write(training(TrainingPlan(ranks=1, steps=2)), tmp_path)[0]
    expected, _ = rows(path, 1)
    monkeypatch.setattr(kineto_regions, "WORTH", 0)
    assert rows(path, 2)[0] == expected
