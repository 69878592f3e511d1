"""Damaged PyTorch profiles give what is whole in them, say what is missing, and never end the program."""

from __future__ import annotations

import gzip
import json
import re
import sys

import pytest

from tests.traces.kineto_events import BASE, call, kernel, reading
from ullage.errors import UllageError
from ullage.traces.json.salvage import salvage

COUNT = 12
EVENTS = [kernel(10 * n, 5, f"gemm {n}") for n in range(COUNT)]
WHOLE = json.dumps({"traceEvents": EVENTS})


def saved(folder, data, name="trace.json"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def names(rows):
    return [row["name"] for row in rows]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_cut_anywhere_gives_the_events_before_the_cut(indent, tmp_path):
    text = json.dumps({"traceEvents": EVENTS[:3]}, indent=indent)
    # an event ends with its arguments' bracket and its own; nothing else here ends so
    ends = [end.end() for end in re.finditer(r"\}\s*\}", text)][:3]
    for cut in range(text.index("[") + 1, len(text)):
        rows, recording, _ = reading(saved(tmp_path, text[:cut]))
        assert names(rows) == [f"gemm {n}" for n in range(sum(end <= cut for end in ends))]
        assert bool(recording.cut) == (cut <= text.rindex("]"))


def test_a_cut_is_named_by_event_and_byte(tmp_path):
    cut = WHOLE.index("gemm 7") + 2
    _, recording, problems = reading(saved(tmp_path, WHOLE[:cut]))
    assert recording.cut.endswith(f"trace.json ends inside event 8 (byte {cut:,})")
    assert problems.lines() == [f"{recording.cut}; what comes before is used"]
    with pytest.raises(UllageError, match=r"ends inside event 8 \(byte"):
        reading(saved(tmp_path, WHOLE[:cut]), strict=True)


def test_a_packed_file_that_ends_early_gives_what_was_packed_before(tmp_path):
    many = json.dumps({"traceEvents": [kernel(10 * n, 5, f"kernel {n * 7919 % 10007}") for n in range(20_000)]})
    packed = gzip.compress(many.encode())
    rows, recording, _ = reading(saved(tmp_path, packed[: len(packed) // 2], "t.json.gz"))
    assert 5_000 < len(rows) < 15_000
    assert names(rows[:2]) == ["kernel 0", "kernel 7919"]
    assert "ends inside event" in recording.cut
    assert "damaged after" in recording.cut


DAMAGES = {
    "a line break in a name": ('"gemm 5"', '"gemm\n5"', "gemm 5"),
    "a control character in a name": ('"gemm 5"', '"gemm\x015"', "gemm 5"),
    "a lone backslash": ('"gemm 5"', '"gemm \\5"', "gemm \\5"),
    "a word that is not a number": ('"gemm 5", "pid": 0', '"gemm 5", "pid": nan', "gemm 5"),
    "a key without a value": ('"gemm 5", "pid": 0', '"gemm 5", "pid": ', "gemm 5"),
    "bytes that are no letters": (b'"gemm 5"', b'"gemm \xff5"', "gemm �5"),
    "words where numbers belong": ('"gemm 5", "pid": 0, "tid": 7, "ts": 50', '"gemm 5", "pid": [], "tid": {}, "ts": "50"', "gemm 5"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_an_event_with_damage_that_can_be_put_right_is_used(what, tmp_path):
    old, new, name = DAMAGES[what]
    data = WHOLE.encode().replace(*(x if isinstance(x, bytes) else x.encode() for x in (old, new)))
    assert data != WHOLE.encode()
    rows, recording, problems = reading(saved(tmp_path, data))
    assert names(rows) == [f"gemm {n}" if n != 5 else name for n in range(COUNT)]
    assert problems.repaired == {"events that were not valid JSON, put right": 1}
    assert not problems.dropped
    assert not recording.cut
    with pytest.raises(UllageError, match=r"not valid JSON at event 6 \(byte"):
        reading(saved(tmp_path, data), strict=True)


def test_an_event_beyond_help_is_left_out_and_the_others_are_used(tmp_path):
    rows, recording, problems = reading(saved(tmp_path, WHOLE.replace('"gemm 5"', '"gemm "5" "')))
    assert names(rows) == [f"gemm {n}" for n in range(COUNT) if n != 5]
    assert problems.lines()[0].startswith("1 events that are not valid JSON left out (first: ")
    assert "event 6 (byte" in problems.lines()[0]
    assert not recording.cut


def test_metadata_after_damaged_events_is_still_read(tmp_path):
    text = json.dumps({"traceEvents": [kernel(0, 5, "gemm 5")], "baseTimeNanoseconds": BASE, "distributedInfo": {"rank": 6}})
    rows, recording, _ = reading(saved(tmp_path, text.replace('"gemm 5"', '"gemm\t5"')))
    assert (rows[0]["start"], recording.rank, recording.clock) == (BASE, 6, "utc")


def test_the_base_time_is_found_in_metadata_that_is_cut(tmp_path):
    text = json.dumps({"traceEvents": [kernel(0, 5)], "baseTimeNanoseconds": BASE, "traceName": "a.json"})
    rows, recording, problems = reading(saved(tmp_path, text[:-4]))
    assert (rows[0]["start"], recording.cut) == (BASE, "")
    assert "1 parts of the metadata that are not valid JSON" in problems.lines()[0]


def test_a_file_that_unpacks_to_more_than_the_limit_is_one_clear_error(tmp_path):
    bomb = gzip.compress(b'{"traceEvents": [' + b" " * 50_000_000)
    with pytest.raises(UllageError, match=r"t\.json\.gz unpacks to more than 10,000,000 bytes"):
        reading(saved(tmp_path, bomb, "t.json.gz"), limit=10_000_000)


@pytest.mark.parametrize("bomb", ["[", '{"a":', '[{"a":'])
def test_nesting_without_end_harms_nothing(bomb, tmp_path):
    deep = bomb * (10 * sys.getrecursionlimit())
    text = WHOLE.replace('"correlation": 1', f'"correlation": 1, "x": {deep}', 1)
    rows, _, problems = reading(saved(tmp_path, text))
    assert len(rows) >= COUNT - 1
    assert sum(problems.dropped.values()) + len(rows) == COUNT
    reading(saved(tmp_path, '{"schemaVersion": 1, "deviceProperties": ' + deep + ', "traceEvents": [' + WHOLE.split("[", 1)[1]))
    rows, recording, _ = reading(saved(tmp_path, '{"traceEvents": [' + deep))
    assert (rows, bool(recording.cut)) == ([], True)


def test_an_empty_list_of_events_is_read_as_such(tmp_path):
    rows, recording, problems = reading(saved(tmp_path, '{"schemaVersion": 1, "traceEvents": []}'))
    assert (rows, recording.cut, problems.lines()) == ([], "", [])


def test_arguments_of_any_type_do_not_cost_the_chunk(tmp_path):
    odd = [kernel(0, 5, stream="7", device=None, grid="(1, 2)", correlation=[1]), kernel(10, 5, grid=[2, 3, 1])]
    rows, _, problems = reading(saved(tmp_path, json.dumps({"traceEvents": [*odd, call(0, 1) | {"args": 5}]})))
    assert [(r["kind"], r["stream"], r["device"], r["blocks"], r["correlation"]) for r in rows if r["kind"] == "kernel"] == [
        ("kernel", 7, 0, None, None),
        ("kernel", 7, 0, 6, 1),
    ]
    assert not problems.lines()


def test_numbers_beyond_all_bounds_are_not_known(tmp_path):
    big = kernel(10, 5, correlation=10**30, stream=2**63, device=2**40, bytes=-5)
    rows, _, _ = reading(saved(tmp_path, json.dumps({"traceEvents": [big, kernel(10**30, 5), kernel(1e300, 5)]})))
    assert [(r["correlation"], r["stream"], r["device"]) for r in rows] == [(None, None, None)]


def test_salvage_keeps_the_elements_as_they_stand():
    found = salvage(b'[{"ph":1} , {"ph":2}', lambda text: text)
    assert (found.elements, found.rest, found.cut, found.repaired, found.dropped) == ([b'{"ph":1}', b'{"ph":2}'], None, False, 0, 0)
