"""Saved Prometheus API answers and VictoriaMetrics export lines, against what a plain JSON parser makes of them."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ullage.sources.prometheus_json as module
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.prometheus_json import PrometheusAnswer, blocks
from ullage.sources.rows.readings import SeriesReadings, label_set
from ullage.sources.source import Options, read_samples
from ullage.sums.ratio_units import settled_batches

SM, CLOCK = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_SM_CLOCK"
T = 1_700_000_000


def labels(name: str | None, gpu: str = "GPU-1", **more: str) -> dict[str, str]:
    return ({"__name__": name} if name else {}) | {"UUID": gpu, "gpu": "0", "Hostname": "n1"} | more


def matrix(*series: tuple[dict[str, str], list[list[object]]], **more: object) -> str:
    result = [{"metric": who, "values": values} for who, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}, **more})


def rows(
    text: str | bytes, tmp_path: Path, name: str = "answer.json", problems: Problems | None = None, **options: int
) -> list[dict[str, object]]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = []
    for batch in read_samples(str(path), Options(**options), problems if problems is not None else Problems()):
        assert batch.schema.names[0] == "time"
        found += [{"t": int(row["time"].timestamp() * 1000), **row} for row in batch.to_pylist()]
    return found


def test_a_range_query_becomes_rows(tmp_path: Path) -> None:
    text = matrix((labels(SM), [[T, "0.5"], [T + 30.123, "0.25"]]))
    found = rows(text, tmp_path)
    assert [(row["t"], row["sm_active"], row["gpu"], row["host"], row["index"]) for row in found] == [
        (T * 1000, 0.5, "GPU-1", "n1", 0),
        (T * 1000 + 30_123, 0.25, "GPU-1", "n1", 0),
    ]


def test_two_metrics_of_one_scrape_share_a_row(tmp_path: Path) -> None:
    text = matrix((labels(SM), [[T, "0.5"]])) + "\n" + matrix((labels(CLOCK), [[T, "1350"]]))
    (row,) = rows(text, tmp_path)
    assert (row["sm_active"], row["sm_clock"]) == (0.5, 1.35e9)


def test_an_instant_query_is_one_reading_a_series(tmp_path: Path) -> None:
    result = [{"metric": labels(SM, gpu), "value": [T, "0.75"]} for gpu in ("GPU-1", "GPU-2")]
    text = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})
    assert [(row["gpu"], row["sm_active"]) for row in rows(text, tmp_path)] == [("GPU-1", 0.75), ("GPU-2", 0.75)]


def test_export_lines_are_read_with_null_and_bare_infinity(tmp_path: Path) -> None:
    # VictoriaMetrics 1.79 writes infinities bare, which is no JSON, and later versions "Infinity"
    line = '{"metric":%s,"values":[0.5,null,+Inf,"Infinity",0.25],"timestamps":[%s]}\n'
    text = line % (json.dumps(labels(SM)), ",".join(str(T * 1000 + 15_000 * i) for i in range(5)))
    found = rows(text, tmp_path)
    assert [(row["t"] - T * 1000, row["sm_active"]) for row in found if row["sm_active"] is not None] == [(0, 0.5), (60_000, 0.25)]


def test_timestamps_may_stand_before_values_and_keys_between_them(tmp_path: Path) -> None:
    text = f'{{"metric":{json.dumps(labels(SM))},"timestamps":[{T}000],"values":[0.5]}}\n'
    text += f'{{"metric":{json.dumps(labels(SM))},"histograms":[],"values":[[{T + 1},"0.25"]]}}\n'
    assert [row["sm_active"] for row in rows(text, tmp_path)] == [0.5, 0.25]


def test_native_histograms_beside_the_series_are_passed_over(tmp_path: Path) -> None:
    histogram = {"metric": labels("latency"), "histograms": [[T, {"count": "1", "buckets": [[0, "1", "2", "3"]]}]]}
    gauge = {"metric": labels(SM), "values": [[T, "0.5"]]}
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [histogram, gauge]}})
    assert [row["sm_active"] for row in rows(text, tmp_path)] == [0.5]


def test_the_missing_name_comes_from_the_file(tmp_path: Path) -> None:
    text = matrix((labels(None), [[T, "0.5"]]))
    assert rows(text, tmp_path, f"{SM}.json")[0]["sm_active"] == 0.5


def test_a_series_without_a_name_is_counted(tmp_path: Path) -> None:
    problems = Problems()
    assert rows(matrix((labels(None), [[T, "0.5"]])), tmp_path, "query.json", problems) == []
    assert problems.dropped["series without a metric name (name the file after the metric)"] == 1


def test_a_name_with_a_quote_is_a_name_of_its_own(tmp_path: Path) -> None:
    problems = Problems()
    assert rows(matrix((labels('a"b'), [[T, "0.5"]])), tmp_path, f"{SM}.json", problems) == []
    assert problems.dropped["series of metrics that Ullage does not keep"] == 1


def test_other_metrics_and_series_without_a_device_are_counted(tmp_path: Path) -> None:
    problems = Problems()
    text = matrix((labels("up"), [[T, "1"]]), ({"__name__": SM, "team": "a"}, [[T, "0.5"]]), (labels(SM), [[T, "0.5"]]))
    assert len(rows(text, tmp_path, problems=problems)) == 1
    assert problems.dropped["series of metrics that Ullage does not keep"] == 1
    assert problems.dropped["series that name no device"] == 1


def test_gzip_is_read(tmp_path: Path) -> None:
    text = gzip.compress(matrix((labels(SM), [[T, "0.5"]])).encode())
    assert len(rows(text, tmp_path, "answer.json.gz")) == 1


def test_a_truncated_gzip_yields_what_was_whole_and_then_one_error(tmp_path: Path) -> None:
    values = [[T + i, str(i % 97 / 100)] for i in range(2000)]
    series = [(labels(SM, f"GPU-{n}"), values) for n in range(40)]
    path = tmp_path / "answer.json.gz"
    path.write_bytes(gzip.compress(matrix(*series).encode())[:-20_000])
    found, problems = 0, Problems()
    with pytest.raises(UllageError, match="damaged after"):
        for batch in read_samples(str(path), problems=problems):
            found += batch.num_rows
    assert found > 0
    assert found % 2000 == 0


def test_a_file_cut_off_keeps_the_whole_series_and_says_so(tmp_path: Path) -> None:
    problems = Problems()
    text = matrix((labels(SM), [[T, "0.5"]]), (labels(SM, "GPU-2"), [[T, "0.5"], [T + 1, "0.5"]]))
    assert [row["gpu"] for row in rows(text[:-30], tmp_path, problems=problems)] == ["GPU-1"]
    assert problems.dropped["series that are cut off or damaged"] == 1
    assert "ends early" in problems.notes[0]


@pytest.mark.parametrize("missing", range(1, 6))
def test_a_missing_bracket_at_the_end_is_noticed(missing: int) -> None:
    text = matrix((labels(SM), [[T, "0.5"]]))
    answer = PrometheusAnswer()
    list(blocks(io.BytesIO(text[:-missing].encode()).read, answer, Problems(), "x"))
    assert not answer.whole


def test_a_damaged_series_is_dropped_with_its_place_and_the_others_stay(tmp_path: Path) -> None:
    problems = Problems()
    text = matrix(*((labels(SM, f"GPU-{n}"), [[T, "0x10" if n == 2 else "0.5"]]) for n in range(5)))
    assert [row["gpu"] for row in rows(text, tmp_path, problems=problems)] == ["GPU-0", "GPU-1", "GPU-3", "GPU-4"]
    assert problems.dropped["series whose numbers can't be read"] == 1
    third = [match.start() for match in re.finditer(r'\{"metric"', text)][2]
    assert f"series 3, byte {third:,}" in problems.first["series whose numbers can't be read"]


@pytest.mark.parametrize(
    "values",
    [[[T]], [["x", "1"]], [[T, "1,2"]], [[T, "1],[2"]], [[T, ""]], [[None, "1"]], [[1e300, "1"]], [[T, "1", "2"]], [[T, {"a": 1}]]],
)
def test_numbers_that_are_none_make_no_readings(values: list[list[object]], tmp_path: Path) -> None:
    problems = Problems()
    found = rows(matrix((labels(SM), values), (labels(SM, "GPU-2"), [[T, "0.5"]])), tmp_path, problems=problems)
    assert [row["gpu"] for row in found] == ["GPU-2"]
    assert sum(problems.dropped.values()) == 1


def test_as_many_timestamps_as_values_are_expected(tmp_path: Path) -> None:
    problems = Problems()
    text = f'{{"metric":{json.dumps(labels(SM))},"values":[0.5,0.5],"timestamps":[{T}000]}}\n'
    assert rows(text, tmp_path, problems=problems) == []
    assert problems.dropped["series whose numbers can't be read"] == 1


def test_warnings_become_notes(tmp_path: Path) -> None:
    problems = Problems()
    rows(
        matrix((labels(SM), [[T, "0.5"]]), warnings=["store \x1b[31m1 down"], infos=["metric might not be a counter"]),
        tmp_path,
        problems=problems,
    )
    assert [note.split(": ", 1)[1] for note in problems.notes] == ["store \\x1b[31m1 down", "metric might not be a counter"]


def test_a_saved_error_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UllageError, match=r"holds an error of the server \(bad_data: 1:3: parse error\)"):
        rows('{"status":"error","errorType":"bad_data","error":"1:3: parse error"}', tmp_path)


def test_an_empty_answer_has_no_rows(tmp_path: Path) -> None:
    assert rows(matrix(), tmp_path) == []


def test_only_readings_of_the_asked_time_are_kept(tmp_path: Path) -> None:
    # a reading speaks for the time before it, so the one at `since` is outside and the one at `until` inside
    text = matrix((labels(SM), [[T + i, "0.5"] for i in range(4)]))
    assert [row["t"] - T * 1000 for row in rows(text, tmp_path, since=T * 1000, until=T * 1000 + 2000)] == [1000, 2000]


def test_times_that_are_not_in_seconds_are_left_out(tmp_path: Path) -> None:
    problems = Problems()
    assert rows(matrix((labels(SM), [[T * 1000, "0.5"]])), tmp_path, problems=problems) == []
    assert problems.dropped["readings with a time before 2000 or after 2100"] == 1


def test_a_label_may_look_like_json_of_a_series(tmp_path: Path) -> None:
    nasty = '{"metric":{"a":"b"},"values":[[1,"2"]]}]}'
    (row,) = rows(matrix((labels(SM, pod=nasty), [[T, "0.5"]])), tmp_path)
    assert (row["pod"], row["sm_active"]) == (nasty, 0.5)


def test_invalid_utf8_and_a_huge_label_are_survived(tmp_path: Path) -> None:
    text = (
        matrix((labels(SM, pod="P"), [[T, "0.5"]]), (labels(CLOCK, job_name="x" * 10_000_000), [[T, "1350"]]))
        .encode()
        .replace(b'"P"', b'"\xff"')
    )
    found = rows(text, tmp_path)
    assert [row["pod"] for row in found] == ["\ufffd", None] or [row["pod"] for row in found] == [None, "\ufffd"]


def test_many_readings_are_yielded_in_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH", 100)
    monkeypatch.setattr(module, "PIECE", 256)
    path = tmp_path / "a.json"
    path.write_text(matrix(*((labels(SM, f"GPU-{n}"), [[T + i, "0.5"] for i in range(50)]) for n in range(10))))
    sizes = [batch.num_rows for batch in read_samples(str(path))]
    assert sum(sizes) == 500
    assert max(sizes) <= 150


@pytest.mark.parametrize("text", ['{"traceEvents":[{"name":"x","metric":1}]}', '{"jobs":[]}', "[]", "hello", ""])
def test_other_json_is_not_taken_for_an_answer(text: str, tmp_path: Path) -> None:
    from ullage.sources.source import Place

    assert module.recognise(Place("x", tmp_path / "x", text.encode())) == 0


def test_bare_results_as_jq_leaves_them_are_read(tmp_path: Path) -> None:
    # jq .data.result gives an array of series, jq .data.result[] the series one after another, indented
    series = [{"metric": labels(SM, f"GPU-{n}"), "values": [[T, "0.5"]]} for n in range(2)]
    assert len(rows(json.dumps(series, indent=2), tmp_path)) == 2
    assert len(rows("\n".join(json.dumps(one, indent=2) for one in series), tmp_path)) == 2


# -- against a plain parser ------------------------------------------------------------------------------------------

_values = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["NaN", "+Inf", "-Inf", "0", "1", "1e-7", "9223372036854775794", "0.995630"]),
)
_pair = st.tuples(st.integers(1, 4_000_000_000_000).map(lambda ms: ms / 1000), _values).map(list)
_label_sets = st.dictionaries(st.text(min_size=1), st.text(), max_size=4)
_result = st.lists(st.tuples(_label_sets, st.lists(_pair, max_size=6)), max_size=6)


def reference(result: list[tuple[dict[str, str], list[list[object]]]]) -> list[tuple[dict[str, str], list[int], list[float]]]:
    """What json.loads and float make of it."""
    return [(who, [round(t * 1000) for t, _ in pairs], [float(v) for _, v in pairs]) for who, pairs in result if pairs]  # type: ignore[operator, arg-type]


def flattened(found: list[SeriesReadings]) -> list[tuple[dict[str, str] | None, list[int], list[float]]]:
    series = []
    for block in found:
        ends = np.cumsum(block.counts)
        for raw, end, count in zip(block.labels, ends, block.counts, strict=True):
            series.append((label_set(raw), block.times[end - count : end].tolist(), block.values[end - count : end].tolist()))
    return [one for one in series if one[1]]


def same(
    found: list[tuple[dict[str, str] | None, list[int], list[float]]], expected: list[tuple[dict[str, str], list[int], list[float]]]
) -> bool:
    return len(found) == len(expected) and all(
        a[0] == b[0] and a[1] == b[1] and np.array_equal(a[2], b[2], equal_nan=True) for a, b in zip(found, expected, strict=True)
    )


@settings(max_examples=150, deadline=None)
@given(_result, st.integers(1, 200), st.booleans(), st.sampled_from([None, 2]))
def test_every_answer_is_read_as_a_plain_parser_reads_it(
    result: list[tuple[dict[str, str], list[list[object]]]], piece: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(
        {"status": "success", "data": {"result": [{"metric": who, "values": pairs} for who, pairs in result]}},
        ensure_ascii=ascii_only,
        indent=indent,
    )
    source = io.BytesIO(text.encode("utf-8", "surrogatepass"))
    answer, problems = PrometheusAnswer(), Problems()
    found = list(blocks(lambda _: source.read(piece), answer, problems, "x"))
    assert same(flattened(found), reference(result))
    assert (answer.series, answer.whole, problems.lines()) == (len(result), True, [])


@settings(max_examples=100, deadline=None)
@given(_result, st.integers(1, 400))
def test_export_lines_are_read_as_a_plain_parser_reads_them(result: list[tuple[dict[str, str], list[list[object]]]], piece: int) -> None:
    lines = []
    for who, pairs in result:
        values = ",".join("null" if v == "NaN" else str(v) for _, v in pairs)
        stamps = ",".join(str(round(t * 1000)) for t, _ in pairs)  # type: ignore[operator]
        lines.append(f'{{"metric":{json.dumps(who)},"values":[{values}],"timestamps":[{stamps}]}}\n')
    source = io.BytesIO("".join(lines).encode())
    answer = PrometheusAnswer()
    assert same(flattened(list(blocks(lambda _: source.read(piece), answer, Problems(), "x"))), reference(result))
    assert answer.whole


@settings(max_examples=150, deadline=None)
@given(_result, st.data())
def test_a_cut_at_any_byte_gives_a_beginning_of_the_whole(
    result: list[tuple[dict[str, str], list[list[object]]]], data: st.DataObject
) -> None:
    text = json.dumps({"status": "success", "data": {"result": [{"metric": who, "values": pairs} for who, pairs in result]}}).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    answer = PrometheusAnswer()
    found = flattened(list(blocks(io.BytesIO(text[:cut]).read, answer, Problems(), "x")))
    assert same(found, reference(result)[: len(found)])
    assert cut == 0 or not answer.whole


def test_one_host_in_percent_does_not_divide_the_others_by_a_hundred(tmp_path):
    # node-1 says 0.4, node-2 says 40 under the same name: both are 0.4
    series = [
        {
            "metric": {"__name__": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "UUID": f"GPU-{n}", "Hostname": f"node-{n}"},
            "values": [[1700000000 + 30 * i, str(v)] for i in range(50)],
        }
        for n, v in ((1, 0.4), (2, 40), (3, 0.4))
    ]
    (tmp_path / "tpa.json").write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}))
    told = pa.Table.from_batches(settled_batches(read_samples(str(tmp_path / "tpa.json"))))
    assert {round(v, 6) for v in told["tensor_active"].to_pylist()} == {0.4}
