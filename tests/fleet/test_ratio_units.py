"""Percent under the name of a ratio is found by exporter and host, for spans of time, in whatever pieces it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from ullage.intake import opened
from ullage.store import units
from ullage.store.store import Store
from ullage.sums.ratio_units import PERCENT, RATIO, Habit, settle_ratio_units, settled_batches, without_dead_clocks
from ullage.tables import Flag, samples

START, STEP = 1_786_363_200_000, 30_000
GAUGES = ("gr_active", "sm_active", "tensor_active")


def rows(scrapes: dict[int, list[dict]], host: str = "n1", cluster: str | None = None) -> pa.Table:
    """Rows as a reader gives them: a number of the scrape -> readings of GPU 0, 1, ... under the names of ratios."""
    told = [(START + STEP * n, gpu, reading) for n, gpus in sorted(scrapes.items()) for gpu, reading in enumerate(gpus)]
    columns = {name: np.array([reading.get(name, np.nan) for _, _, reading in told]) for name in (*GAUGES, "dram_active", "gpu_util")}
    open_unit = np.nanmax(np.nan_to_num(np.array([columns[name] for name in (*GAUGES, "dram_active")])), axis=0) > 0
    return pa.Table.from_batches([
        samples(columns | {
            "time": [time for time, _, _ in told], "host": [host] * len(told), "cluster": [cluster] * len(told),
            "gpu": [f"{cluster or ''}{host}/{gpu}" for _, gpu, _ in told],
            "flags": np.where(open_unit, np.uint16(Flag.NAMED_RATIO), np.uint16(0)),
        })
    ])  # fmt: skip


def sm(*readings: float, util: float | None = None) -> dict[int, list[dict]]:
    """Scrapes of one GPU that tells sm_active and, where given, "GPU utilization"."""
    extra = {} if util is None else {"gpu_util": util}
    return {n: [{"sm_active": value} | extra] for n, value in enumerate(readings)}


def values(table: pa.Table, name: str = "sm_active") -> list[float | None]:
    return [None if value is None else round(value, 6) for value in table[name].to_pylist()]


def settled(scrapes: dict[int, list[dict]]) -> list[float | None]:
    return values(settle_ratio_units(rows(scrapes), {}).rows)


# --- what a scrape says


def test_percent_is_seen_where_an_sm_reads_above_two_and_holds_before_and_after():
    assert settled(sm(0.4, 2.1, 0.2)) == [0.004, 0.021, 0.002]
    assert settled(sm(0.4, 2.0, 0.2)) == [0.4, None, 0.2]  # a counter may overshoot that far; it is no percent, and no ratio


def test_a_reading_beyond_all_percent_proves_nothing():
    assert settled(sm(0.4, 110.0)) == [0.004, 1.1]
    assert settled(sm(0.4, 110.1)) == [0.4, None]


def test_one_busy_gpu_speaks_for_all_gpus_and_gauges_of_its_host():
    scrapes = {0: [{"sm_active": 0.5, "tensor_active": 0.3}, {"sm_active": 55.0, "dram_active": 0.9}]}
    found = settle_ratio_units(rows(scrapes), {}).rows
    assert values(found) == [0.005, 0.55]
    assert values(found, "tensor_active") == [0.003, None] and values(found, "dram_active") == [None, 0.009]
    assert found["flags"].to_pylist() == [Flag.NAMED_RATIO | Flag.PERCENT | Flag.UNIT_GUESSED] * 2


def test_another_host_keeps_its_own_unit():
    both = pa.concat_tables([rows(sm(0.4, 50.0)), rows(sm(0.4, 0.6), host="n2")])
    assert values(settle_ratio_units(both, {}).rows) == [0.004, 0.5, 0.4, 0.6]


def test_a_host_of_the_same_name_in_another_cluster_keeps_its_own_unit():
    every = {cluster: rows(sm(0.4, 50.0 if cluster == "east" else 0.6), cluster=cluster) for cluster in ("west", "east", None)}
    found = settle_ratio_units(pa.concat_tables(list(every.values())), {})
    assert values(found.rows) == [0.4, 0.6, 0.004, 0.5, 0.4, 0.6]
    told = {exporter[1:]: habit.units(np.array([START]))[0] for exporter, habit in found.habits.items() if exporter[0] == "activity"}
    assert told[("east", "n1")] == PERCENT and {("west", "n1"), ("east", "n1"), (None, "n1")} >= told.keys()


def test_a_wild_reading_that_its_engine_contradicts_is_impossible_and_proves_nothing():
    # the tensor pipes at 50 with SMs at 0.6: in percent they would work more than their SMs
    found = settle_ratio_units(rows({0: [{"sm_active": 0.6, "tensor_active": 50.0}], 1: [{"sm_active": 0.6, "tensor_active": 0.3}]}), {})
    assert values(found.rows, "tensor_active") == [None, 0.3] and values(found.rows) == [0.6, 0.6]
    assert found.impossible == {"tensor_active": 1}
    assert found.rows["flags"].to_pylist()[0] & Flag.IMPOSSIBLE


def test_a_gauge_that_is_stuck_at_zero_contradicts_nothing():
    assert values(settle_ratio_units(rows({0: [{"gr_active": 0.0, "sm_active": 60.0}]}), {}).rows) == [0.6]


def test_memory_alone_proves_nothing():
    # DRAM_ACTIVE was wrong in DCGM 3.1.3 (NVIDIA/DCGM issue 65)
    found = settle_ratio_units(rows({0: [{"dram_active": 14.0}], 1: [{"sm_active": 0.5}]}), {}).rows
    assert values(found, "dram_active") == [None, None] and values(found) == [None, 0.5]


def test_a_steady_load_that_utilization_sees_too_is_a_ratio():
    # 50 %, then the exporter changes to ratios, and goes idle; the SMs half as busy as the utilization, which is 30 %
    busy = {"sm_active": 0.15, "gpu_util": 0.3}
    assert settled({0: [{"sm_active": 50.0}], 1: [busy], 2: [{"sm_active": 0.2}]}) == [0.5, 0.15, 0.2]
    for short in ({"sm_active": 0.1499}, {"gpu_util": 0.2999}):
        assert settled({0: [{"sm_active": 50.0}], 1: [busy | short], 2: [{"sm_active": 0.2}]})[2] == 0.002


@pytest.mark.parametrize(("scrapes", "above"), [(75, True), (74, False)])
def test_an_idle_host_in_percent_is_seen_by_its_utilization(scrapes, above):
    # 0.2 (percent) with a utilization of 1 %: as ratios the gauges would be twenty times as high as it; 75 x 0.2 = 15 is enough
    found = settle_ratio_units(rows(sm(*[0.2] * scrapes, util=0.01)), {}).rows
    assert set(values(found)) == {0.002 if above else 0.2}
    assert all(bool(flags & Flag.PERCENT) == above for flags in found["flags"].to_pylist())


@pytest.mark.parametrize(
    ("util", "expected"),
    [
        ([0.0] * 200, 0.2),  # a utilization that sleeps, or is never there when the work is, proves nothing
        ([0.01] * 2 + [0.0] * 198, 0.2),
        ([0.01] * 3 + [0.0] * 197, 0.002),
        ([0.0199] * 200, 0.002),  # a tenth of 0.2, and less
        ([0.0201] * 200, 0.2),
    ],
)
def test_what_utilization_must_show_for_that(util, expected):
    told = {n: [{"sm_active": 0.2, "gpu_util": one}] for n, one in enumerate(util)}
    assert set(settled(told)) == {expected}


def test_short_bursts_are_ratios():
    # every fifth sample finds the GPU at work, and it works a fifth of the time
    told = {n: [{"sm_active": 0.2, "gpu_util": 1.0 if n % 5 == 0 else 0.0}] for n in range(300)}
    assert set(settled(told)) == {0.2}


def test_gpu_utilization_has_a_unit_of_its_own():
    # DCGM 4.6.0 wrote whole percent under GPU_UTIL_RATIO, beside activities that were ratios
    told = rows({0: [{"sm_active": 0.9, "gpu_util": 95.0}], 1: [{"sm_active": 0.009, "gpu_util": 1.0}]})
    flags = pa.array(told["flags"].to_numpy() | np.uint16(Flag.UTILIZATION_NAMED_RATIO))
    found = settle_ratio_units(told.set_column(told.schema.get_field_index("flags"), told.schema.field("flags"), flags), {}).rows
    assert values(found, "gpu_util") == [0.95, 0.01] and values(found) == [0.9, 0.009]


def test_the_batches_of_a_place_are_settled_one_after_another():
    batches = [rows(sm(50.0)).to_batches()[0], rows({1: [{"sm_active": 0.4}]}).to_batches()[0]]
    assert [values(pa.Table.from_batches([batch])) for batch in settled_batches(batches)] == [[0.5], [0.004]]


def test_evidence_that_comes_late_changes_what_it_speaks_for():
    table = rows({n: [{"sm_active": value}] for n, value in ((10, 50.0), (20, 60.0))})
    habits = settle_ratio_units(table, {}).habits
    busy = {"sm_active": 0.9, "gpu_util": 0.9}
    late = settle_ratio_units(rows({n: [busy] for n in (5, 6)}), habits).habits
    [habit] = late.values()
    # before scrape 7 it wrote ratios, from then on percent, as it was known to
    assert habit.units(np.array([START + STEP * n for n in (0, 5, 6, 10, 30)])).tolist() == [RATIO, RATIO, RATIO, PERCENT, PERCENT]


def test_a_ratio_may_be_a_tenth_above_one_and_is_missing_beyond():
    busy = [{"sm_active": 0.9, "gpu_util": 0.9}]
    found = settle_ratio_units(rows({0: busy, 1: [{"sm_active": 1.1}], 2: [{"sm_active": 1.1001}], 3: [{"sm_active": 1.1002}]}), {})
    assert values(found.rows) == [0.9, 1.1, None, None] and found.impossible == {"sm_active": 2} and found.percent == 0
    assert found.rows["flags"].to_pylist() == [Flag.NAMED_RATIO] * 2 + [Flag.NAMED_RATIO | Flag.IMPOSSIBLE] * 2


def test_what_memory_cannot_have_is_missing_and_no_fault_of_what_is_judged():
    found = settle_ratio_units(rows({0: [{"sm_active": 0.9, "gpu_util": 0.9, "dram_active": 1.5}]}), {})
    assert values(found.rows, "dram_active") == [None] and found.impossible == {"dram_active": 1}
    assert found.rows["flags"].to_pylist() == [Flag.NAMED_RATIO]


def test_readings_in_percent_are_counted_and_zeros_are_none():
    # two gauges of the second scrape, one of the third; 0 is the same in both units
    table = rows({0: [{"sm_active": 0.0}], 1: [{"sm_active": 50.0, "tensor_active": 30.0}], 2: [{"sm_active": 20.0, "tensor_active": 0.0}]})
    found = settle_ratio_units(table, {})
    assert found.percent == 3
    assert [habit.last for habit in found.habits.values()] == [START + 2 * STEP]


def test_what_is_changed_is_told_from_the_first_time_on_that_reads_otherwise():
    idle = settle_ratio_units(rows(sm(0.4, 0.3)), {})
    assert idle.changed == {}  # nothing was known, and nothing is
    busy = settle_ratio_units(rows({10: [{"sm_active": 50.0}]}), idle.habits)
    assert list(busy.changed.values()) == [-(2**60)]  # percent, before the first scrape too
    later = settle_ratio_units(rows({20: [{"sm_active": 0.9, "gpu_util": 0.9}]}), busy.habits)
    assert list(later.changed.values()) == [START + 20 * STEP]
    assert settle_ratio_units(rows({21: [{"sm_active": 0.9, "gpu_util": 0.9}]}), later.habits).changed == {}


def test_a_device_of_no_known_host_has_a_unit_of_its_own():
    told = rows({0: [{"sm_active": 0.4}, {"sm_active": 50.0}], 1: [{"sm_active": 0.5}, {"sm_active": 20.0}]}, host=None)
    found = settle_ratio_units(told, {})
    assert values(found.rows) == [0.4, 0.5, 0.5, 0.2]
    assert {exporter[1:] for exporter in found.habits} == {(None, "None/0"), (None, "None/1")}


def test_silent_scrapes_are_added_up_once_however_often_they_come():
    # 0.2 with a utilization of 1 %: 40 scrapes give 8 of 15, and again 8; 35 later ones come to 15
    first = rows({n: [{"sm_active": 0.2, "gpu_util": 0.01}] for n in range(40)})
    habits = settle_ratio_units(first, {}).habits
    [habit] = habits.values()
    assert (habit.since, habit.until, habit.awake) == (START, START + 39 * STEP, 40)
    assert (habit.readings, habit.utilization) == (pytest.approx(8), pytest.approx(0.4))
    assert settle_ratio_units(first, habits).habits == habits
    later = {n: [{"sm_active": 0.2, "gpu_util": 0.01}] for n in range(40, 75)}
    [known] = settle_ratio_units(rows(later), habits).habits.values()
    assert known == Habit(((START, PERCENT),), START + 74 * STEP)
    [waiting] = settle_ratio_units(rows({n: later[n] for n in range(40, 74)}), habits).habits.values()
    assert waiting.changes == () and waiting.until == START + 73 * STEP


# --- clocks


@pytest.mark.parametrize(
    ("clock", "tensor", "kept"),
    [(0.0, 0.3, False), (0.0, 0.005, True), (0.0, 0.0051, False), (1e6, 0.3, True), (0.0, None, True), (None, 0.3, True)],
)
def test_a_clock_of_zero_while_the_tensor_pipes_work_is_missing(clock, tensor, kept):
    table = pa.Table.from_batches([samples({"time": [START], "gpu": ["G"], "sm_clock": [clock], "tensor_active": [tensor]})])
    found = without_dead_clocks(table)
    assert found["sm_clock"].to_pylist() == [clock if kept else None]
    assert found["flags"].to_pylist() == [0 if kept else Flag.IMPOSSIBLE]


def test_a_clock_of_zero_meets_its_activity_in_the_store(store):
    for column in ({"sm_clock": [0.0]}, {"tensor_active": [0.3]}, {"sm_clock": [0.0]}):
        store.append(samples({"time": [START], "gpu": ["G"]} | column))
    [row] = store.samples(["sm_clock", "tensor_active", "flags"]).to_pyarrow().to_pylist()
    assert row["sm_clock"] is None and row["flags"] & Flag.IMPOSSIBLE


# --- in the store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


def stored(store: Store) -> list[tuple]:
    """(gpu, time, the gauges) of every row, in order."""
    table = store.samples(["gpu", "time", *GAUGES]).order_by(["gpu", "time"]).to_pyarrow()
    columns = [values(table, name) if name in GAUGES else table[name].to_pylist() for name in table.column_names]
    return list(zip(*columns, strict=True))


def test_what_was_settled_is_kept_for_a_later_idle_piece(store):
    store.append(rows(sm(0.4, 50.0)))
    done = store.append(rows({n: [{"sm_active": 0.3}] for n in (100, 101)}))
    assert [value for *_, value, _ in stored(store)] == [0.004, 0.5, 0.003, 0.003]
    assert done.percent == 2


def test_an_idle_piece_that_came_first_is_put_right_when_the_exporter_speaks(store):
    store.append(rows(sm(0.4, 0.3)))
    assert store.samples(["flags"]).to_pyarrow()["flags"].to_pylist() == [Flag.NAMED_RATIO] * 2
    store.append(rows({10: [{"sm_active": 50.0}]}))
    assert [value for *_, value, _ in stored(store)] == [0.004, 0.003, 0.5]
    first, *_ = store.samples(["time", "flags"]).order_by("time").to_pyarrow()["flags"].to_pylist()
    assert first == Flag.NAMED_RATIO | Flag.PERCENT | Flag.UNIT_GUESSED
    store.verify()


def test_the_same_idle_piece_again_is_known(store):
    first, second = rows(sm(0.4, 0.3)), rows({10: [{"sm_active": 50.0}]})
    for piece in (first, second):
        store.append(piece)
    before = stored(store)
    for piece in (first, second):
        done = store.append(piece)
        assert (done.rows_new, done.rows_changed) == (0, 0)
    assert stored(store) == before


def test_ordinary_exporters_cost_the_file_of_units_one_write(store, monkeypatch):
    writes = []
    write = units.write
    monkeypatch.setattr(units, "write", lambda *given: (writes.append(given), write(*given)))
    for n in range(4):
        store.append(rows({10 * n: [{"sm_active": 0.9, "gpu_util": 0.95}], 10 * n + 1: [{"sm_active": 0.004}]}))
    assert len(writes) == 1
    assert units.read(store.path) == {("activity", None, "n1"): Habit(((START, RATIO),))}


def test_a_damaged_file_of_units_is_one_clear_error(store):
    from ullage.errors import UllageError

    store.append(rows(sm(0.4, 50.0)))
    (store.path / units.NAME).write_text("{")
    with pytest.raises(UllageError, match=r"units.json is damaged"):
        store.append(rows(sm(0.4)))


def test_an_hour_of_idleness_in_percent_reads_the_same_alone_and_before_an_hour_of_work(tmp_path):
    # 2.7 of the review: idle for an hour, busy for an hour, in percent under the names of ratios
    def page(hours: range) -> str:
        return "".join(
            f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0",UUID="GPU-1",Hostname="n1"}} {0.2 if hour == 0 else 30.0} {START + STEP * (120 * hour + n)}\n'
            for hour in hours
            for n in range(120)
        )

    def mean(*pages: str) -> float:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        for text in pages:
            (tmp_path / "a.prom").write_text(text)
            with opened([str(tmp_path / "a.prom")], store=str(place)) as taken:
                found = taken.samples.select("sm_active").to_pyarrow()["sm_active"].to_numpy()
        return float(found.mean())

    # (0.002 + 0.30) / 2
    assert mean(page(range(2))) == pytest.approx(0.151)
    assert mean(page(range(1)), page(range(1, 2))) == pytest.approx(0.151)
    assert mean(page(range(1, 2)), page(range(1))) == pytest.approx(0.151)


# --- any exporter, in any pieces


@dataclass(frozen=True)
class Exporter:
    """What a host's exporter did, scrape by scrape: its unit, and which of two GPUs were busy; and what it wrote."""

    percent: list[bool]
    busy: list[tuple[bool, bool]]
    truth: list[list[dict]]

    def told(self, start: int = 0, end: int | None = None) -> pa.Table:
        wrote = {}
        for n, readings in list(enumerate(self.truth))[start:end]:
            factor = 100 if self.percent[n] else 1
            wrote[n] = [{name: value * (1 if name == "gpu_util" else factor) for name, value in one.items()} for one in readings]
        return rows(wrote)

    def expected(self, start: int = 0, end: int | None = None) -> list[tuple]:
        """By the rule itself: the unit of the last scrape that says it, or else of the first; a ratio where none does."""
        scrapes = range(start, len(self.truth) if end is None else end)
        speaking = [n for n in scrapes if any(self.busy[n])]
        found = []
        for n in scrapes:
            before = [m for m in speaking if m <= n]
            unit = self.percent[before[-1] if before else speaking[0]] if speaking else False
            factor = (100 if self.percent[n] else 1) / (100 if unit else 1)
            found += [(gpu, n, *(round(one[name] * factor, 5) for name in GAUGES)) for gpu, one in enumerate(self.truth[n])]
        return sorted(found)


@st.composite
def exporters(draw: st.DrawFn) -> Exporter:
    """An exporter that changes its unit, and GPUs that change from idle to busy, at random times."""
    count = draw(st.integers(4, 40))
    changes = draw(st.sets(st.integers(1, count - 1), max_size=3))
    first, unit, percent = draw(st.booleans()), False, []
    states = [draw(st.lists(st.integers(1, count), max_size=6)) for _ in range(2)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    busy, truth = [], []
    for n in range(count):
        unit = unit ^ (n in changes) if n else first
        percent.append(unit)
        busy.append(tuple(sum(at <= n for at in state) % 2 == 1 for state in states))
        truth.append([readings(rng, one) for one in busy[-1]])
    return Exporter(percent, busy, truth)  # type: ignore[arg-type]


def readings(rng: np.random.Generator, busy: bool) -> dict:
    """Busy: an engine at 40 to 100 %, which utilization sees too. Idle: at most 0.33 %, and utilization shows 0 or 1 %.

    In 40 scrapes that is too little for utilization to prove the unit (see `ENOUGH_READINGS`).
    """
    if not busy:
        return {name: float(rng.uniform(0.0005, 0.0033)) for name in GAUGES} | {"gpu_util": float(rng.integers(0, 2)) / 100}
    engine = rng.uniform(0.4, 1.0)
    fill = engine * rng.uniform(0.3, 1.0)
    return {"gr_active": engine, "sm_active": fill, "tensor_active": fill * rng.uniform(0, 1), "gpu_util": round(engine, 2)}


def numbered(store: Store) -> list[tuple]:
    return sorted(
        (int(gpu[-1]), (round(time.timestamp() * 1000) - START) // STEP, *(round(v, 5) for v in found))
        for gpu, time, *found in stored(store)
    )


@settings(max_examples=examples(8, 25), deadline=None)
@given(exporters(), st.data())
def test_whatever_the_pieces_the_same_values_come_out(tmp_path_factory, exporter, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(exporter.truth) - 1), max_size=5)))
    store = Store.open(tmp_path_factory.mktemp("units") / "store", create=True)
    for start, end in zip([0, *cuts], [*cuts, None], strict=True):
        store.append(exporter.told(start, end), chunk_rows=data.draw(st.sampled_from([3, 7, 1000])))
    expected = exporter.expected()
    for got, want in zip(numbered(store), expected, strict=True):
        assert got == pytest.approx(want, abs=2e-5)
    # any window of it, read again, finds every row as it is
    start = data.draw(st.integers(0, len(exporter.truth) - 1))
    again = store.append(exporter.told(start, data.draw(st.integers(start + 1, len(exporter.truth)))))
    assert (again.rows_new, again.rows_changed) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(exporters(), st.data())
def test_a_window_alone_gives_what_it_says_and_what_is_busy_is_always_true(tmp_path_factory, exporter, data):
    start = data.draw(st.integers(0, len(exporter.truth) - 1))
    end = data.draw(st.integers(start + 1, len(exporter.truth)))
    found = settle_ratio_units(exporter.told(start, end), {}).rows
    got = [(n, *(round(v, 5) for v in one)) for n, one in enumerate(zip(*(found[name].to_pylist() for name in GAUGES), strict=True))]
    expected = [one[2:] for one in sorted(exporter.expected(start, end), key=lambda one: (one[1], one[0]))]
    for (_, *one), want in zip(got, expected, strict=True):
        assert tuple(one) == pytest.approx(want, abs=2e-5)
    for n, busy in enumerate(exporter.busy[start:end]):
        for gpu, works in enumerate(busy):
            if works:
                truth = [exporter.truth[start + n][gpu][name] for name in GAUGES]
                assert got[2 * n + gpu][1:] == pytest.approx(truth, abs=2e-5)
