"""Columns of a PyTorch profile: numbers and words out of lists, many small parts into few large ones, launches by their number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ullage import arrays
from ullage.recording import Recording
from ullage.sums.lanes.gather import NOT_KNOWN, gather
from ullage.tables import intervals
from ullage.traces.kineto import part as kineto_part
from ullage.traces.kineto.launches import KinetoLaunches
from ullage.traces.kineto.part import CodedWords, KinetoPart, joined, numbers, words
from ullage.traces.kineto.timed import _scaled


def part(names: list[str | None], start: int = 0, kind: str = "api") -> KinetoPart:
    begin = np.arange(start, start + len(names))
    return KinetoPart(kind, begin, begin + 1, {"process": np.full(len(names), 7)}, {"name": words(names, {})})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2**62], [1, 2**62]),
        ([1, None], [1, -1]),
        ([1.9, "12"], [1, 12]),
        ([None, "no number", 2**63], [-1, -1, -1]),
        ([], []),
    ],
)
def test_numbers_are_whole_or_not_known(values, expected):
    assert numbers(values).tolist() == expected and numbers(values).dtype == np.int64


@pytest.mark.parametrize(
    ("values", "expected", "whole"),
    [
        ([1, 2], [1000, 2000], True),
        ([1, 2.5], [1000, 2500], False),
        ([1.5, 2], [1500, 2000], False),
        ([1, None], [1000, 0], False),
        ([1.5, 10**400], [1500, 0], False),
        ([], [], True),
    ],
)
def test_times_are_whole_where_all_numbers_are(values, expected, whole):
    found, known, are_whole = _scaled(values)
    assert found.tolist() == expected and are_whole is whole
    assert known.tolist() == [value is not None and value < 8e15 for value in values]


def test_words_that_are_none_have_no_code():
    column = words(["a", None, "b", "a"], {})
    assert column.values() == ["a", None, "b", "a"]
    assert column.are(lambda word: word == "a").tolist() == [True, False, False, True]


@pytest.mark.parametrize(("most", "sizes"), [(4, [4, 2]), (3, [2, 2, 2]), (6, [6]), (1, [2, 2, 2])])
def test_parts_are_joined_up_to_so_many_rows(monkeypatch, most, sizes):
    monkeypatch.setattr(kineto_part, "MOST_ROWS", most)
    small = [part(["a", "b"]), part(["b", None], 2), part(["c", "a"], 4)]
    found = joined(small)
    assert [len(one) for one in found] == sizes
    assert [word for one in found for word in one.words["name"].values()] == ["a", "b", "b", None, "c", "a"]
    assert np.concatenate([one.start for one in found]).tolist() == list(range(6))


def test_only_parts_of_one_sort_are_joined():
    other = KinetoPart("api", np.array([9]), np.array([10]), {"process": np.array([7])}, {})  # which have no names
    found = joined([part(["a"]), part(["a"], kind="region"), other, part(["b"], 1)])
    assert [(one.kind, len(one), list(one.words)) for one in found] == [("api", 2, ["name"]), ("region", 1, ["name"]), ("api", 1, [])]


def collectives(external: list[int], operation: list[str | None], size: list[int]) -> KinetoPart:
    count = len(external)
    none, begin = np.full(count, -1), np.arange(count)
    columns = {"bytes": np.array(size), "sequence": none, "members": none.astype(np.int32), "external": np.array(external)}
    return KinetoPart("collective", begin, begin + 1, columns, {"operation": words(operation, {}), "group": words([None] * count, {})})


def test_of_launches_with_one_number_the_last_fills_in_what_is_lacking():
    launches = KinetoLaunches([collectives([5, 6], ["reduce", "send"], [1, 2]), collectives([5, -1], ["allreduce", "recv"], [3, 4])])
    told = launches.tell(collectives([5, 6, 9, -1, 5], [None, "", None, None, "own"], [-1, 20, -1, -1, -1]))
    assert told.words["operation"].values() == ["allreduce", "send", None, None, "own"]
    assert told.numbers["bytes"].tolist() == [3, 20, -1, -1, 3] and "external" not in told.numbers


def test_without_launches_collectives_stay_as_they_are():
    told = KinetoLaunches([]).tell(collectives([5], ["reduce"], [1]))
    assert told.words["operation"].values() == ["reduce"] and "external" not in told.numbers


@pytest.mark.parametrize("length", [0, 3, 4, 5])
def test_nulls_are_as_many_as_asked_for(monkeypatch, length):
    monkeypatch.setattr(arrays, "_SHARED", 4)
    arrays._nulls.cache_clear()
    found = arrays.nulls(length, pa.int64())
    arrays._nulls.cache_clear()
    assert found.to_pylist() == [None] * length and found.type == pa.int64()


@pytest.mark.parametrize("extra", [0, 1])
def test_of_a_dictionary_of_the_whole_file_only_the_words_in_use_are_taken(extra):
    # two rows: a dictionary of up to four words is taken whole, one of five as far as it is used
    listed = ["a", "b", "c", "d", "e"][: 4 + extra]
    name = arrays.coded(np.array([3, -1], np.int32), listed)
    capture = gather([intervals({"start": [0, 1], "end": [1, 2], "kind": ["region", "region"], "name": name})], Recording("a file"))
    assert [capture.words[code] if code != NOT_KNOWN else None for code in capture.host.name] == ["d", None]
    assert capture.words == (["d"] if extra else listed)


def test_a_column_of_nulls_is_one_value():
    capture = gather([intervals({"start": [0, 1], "end": [1, 2], "kind": ["region"] * 2})], Recording("a file"))
    assert capture.host.bytes.tolist() == [NOT_KNOWN] * 2 and capture.host.bytes.strides == (0,)
    assert CodedWords(capture.host.name, []).values() == [None, None]


def test_small_parts_are_let_go_as_they_are_joined():
    small = [part(["a"]), part(["b"], 1)]
    joined(small)
    assert small == []
