"""A report beside another one: each window answered by itself, and subtracted in decimals."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

import ullage
from tests.conftest import T0, settled_table
from tests.seeds import some
from ullage.errors import UllageError
from ullage.metrics.telemetry import LABELS
from ullage.questions.fleet import other_report
from ullage.render.fleet import view
from ullage.render.fleet_document import record
from ullage.reports.fleet.comparison import (
    FigureChange,
    FigureWithError,
    FleetFigures,
    GroupFigures,
    StepFigures,
    compared,
)
from ullage.views.html import html
from ullage.views.text import text

HOUR = 3_600_000


def figure(draw, high):
    """A figure of which some are not known and some have no error."""
    if draw.random() < 0.1:
        return None
    value = float(draw.uniform(0, high))
    low, up = (float(draw.uniform(0, high / 10)) if draw.random() < 0.7 else 0.0 for _ in range(2))
    return FigureWithError.of(value, (value - low, value + up))


def drawn_figures(draw, by="job"):
    names = [name for name in ("held_idle", "activity", "sm_fill_x_tensor_issue", "clock") if draw.random() < 0.8]
    keys = [f"j{n}" for n in range(8) if draw.random() < 0.6]
    steps = {name: figure(draw, 50) or FigureWithError(0.0, 0.0, 0.0) for name in names}
    return FleetFigures(
        window=(T0, T0 + 2 * HOUR),
        gpus=float(draw.integers(0, 100)),
        gpu_hours=float(draw.uniform(0, 1000)),
        ofu=figure(draw, 1),
        ullage=figure(draw, 500),
        gpu_util=figure(draw, 1),
        kwh=figure(draw, 9),
        steps={name: StepFigures(name, lost, lost.times(0.01)) for name, lost in steps.items()},
        by=by,
        groups={key: GroupFigures(float(draw.uniform(0, 9)), figure(draw, 1), figure(draw, 9)) for key in keys},
    )


def told_in_decimals(before, now):
    """What is told of a change, in exact decimals: nothing where the two ranges touch, or where a figure is not known."""
    if before is None or now is None:
        return None
    old, new = ([Decimal(value) for value in (one.least, one.value, one.most)] for one in (before, now))
    if new[0] > old[2] or new[2] < old[0]:
        return new[1] - old[1]
    return Decimal(0) if old == new and old[0] == old[2] else None


@pytest.mark.parametrize("seed", some(range(3000), 40))
def test_a_change_is_told_where_the_ranges_of_both_figures_are_apart(seed):
    draw = np.random.default_rng(seed)
    before, now = drawn_figures(draw), drawn_figures(draw)
    found = compared(before, now, "then", list(LABELS))
    pairs = [(found.ofu, before.ofu, now.ofu), (found.ullage, before.ullage, now.ullage), (found.kwh, before.kwh, now.kwh)]
    for step in found.steps:
        pairs.append((step.lost, *(side.steps[step.name].lost if step.name in side.steps else None for side in (before, now))))
    for one in found.groups:
        sides = [side.groups.get(one.key) for side in (before, now)]
        assert one.presence == ("both" if all(sides) else "new" if sides[0] is None else "gone")
        pairs.append((one.ullage, *(None if side is None else side.ullage for side in sides)))
    for made, old, new in pairs:
        told = told_in_decimals(old, new)
        assert (made.change is None) == (told is None)
        assert told is None or made.change == pytest.approx(float(told), rel=1e-12, abs=1e-12)
    assert {one.key for one in found.groups} == {*before.groups, *now.groups}
    assert [step.name for step in found.steps] == [name for name in ("held_idle", "activity", "sm_fill_x_tensor_issue", "clock")
                                                   if name in {*before.steps, *now.steps}]  # fmt: skip


@pytest.mark.parametrize(("least", "told"), [(0.400001, 0.1), (0.4, None), (0.399999, None)])
def test_a_change_no_larger_than_the_errors_is_not_told(least, told):
    found = FigureChange(FigureWithError(0.35, 0.3, 0.4), FigureWithError(0.45, least, 0.5))
    assert found.change == (None if told is None else pytest.approx(told)) and found.exceeds_error == (told is not None)


def test_figures_without_an_error_that_differ_by_rounding_are_the_same():
    assert FigureChange(FigureWithError.of(3.0), FigureWithError.of(3.0 + 1e-12)).change == 0
    assert FigureChange(FigureWithError.of(3.0), FigureWithError.of(3.0 + 1e-8)).change == pytest.approx(1e-8)
    assert FigureChange(None, FigureWithError.of(3.0)).change is None


# --- whole reports ---


def written(path: Path, seed: int) -> Path:
    """Two hours of three jobs of two users; OFU, activity and the clock of the second hour are others; a job is new and one is gone."""
    draw = np.random.default_rng(seed)
    rows = []
    for gpu in range(4):
        for hour in range(2):
            job = ("a", "b", "c" if hour else "d", None)[gpu]
            level, clock = draw.uniform(0.1, 0.6), draw.choice([1.2e9, 1.5e9, 1.83e9])
            for step in range(120):
                busy = float(np.float32(level * draw.uniform(0.9, 1.1))) if job else 0.0
                row = {
                    "time": T0 + hour * HOUR + 30_000 * (step + 1),
                    "gpu": f"g{gpu}",
                    "job": job,
                    "user": job and "ann bob"[gpu // 2 * 4 :],
                }
                row |= {"tensor_active": busy, "sm_active": min(1.0, 1.4 * busy), "gr_active": min(1.0, 1.5 * busy)}
                row |= {"sm_clock": float(np.float32(clock * draw.uniform(0.98, 1.0))), "power": 300.0}
                rows.append(row)
    parquet.write_table(settled_table(sorted(rows, key=lambda row: (row["gpu"], row["time"]))), path)
    return path


def hours_of(place, since, until, **more):
    return record(ullage.fleet(place, since=since, until=until, **more))


@pytest.mark.parametrize("seed", some(range(40), 1))
@pytest.mark.parametrize("by", ["job", "user"])
def test_two_windows_answered_by_themselves_and_subtracted_in_decimals(tmp_path, seed, by):
    place = written(tmp_path / "s.parquet", seed)
    before, now = (hours_of(place, T0 + n * HOUR, T0 + (n + 1) * HOUR, by=by) for n in range(2))
    found = hours_of(place, T0 + HOUR, T0 + 2 * HOUR, by=by, against="1h")["against"]
    assert found["window"] == before["window"] and found["by"] == by

    def range_of(side, value, name="ofu"):
        return (value, value, value) if side[f"{name}_bounds"] is None else (side[f"{name}_bounds"][0], value, side[f"{name}_bounds"][1])

    def same(made, old, new):
        told = told_in_decimals(*(FigureWithError(*(one[n] for n in (1, 0, 2))) if one else None for one in (old, new)))
        assert made["change"] == (None if told is None else pytest.approx(float(told), rel=1e-9, abs=1e-9))

    same(found["ofu"], range_of(before, before["ofu"]), range_of(now, now["ofu"]))
    same(found["gpu_hours"], *((side["gpu_hours"],) * 3 for side in (before, now)))
    rows = [{row["key"]: row for row in side["groups"]} for side in (before, now)]
    assert {row["key"] for row in found["groups"]} == {*rows[0], *rows[1]}
    for made in found["groups"]:
        sides = [side.get(made["key"]) for side in rows]
        known = [side is not None and side["ofu"] is not None for side in sides]
        same(made["ofu"], *(range_of(side, side["ofu"]) if ok else None for side, ok in zip(sides, known, strict=True)))
    # all the ullage stands in the steps, before and now
    for side in ("before", "now"):
        total = sum(Decimal(step["gpu_hours"][side] or 0.0) for step in found["steps"])
        assert float(total) == pytest.approx(found["ullage_gpu_hours"][side])


@pytest.mark.parametrize("by", ["job", "gpu"])
def test_the_rows_bounds_add_up_to_no_less_than_the_fleets_and_to_them_where_each_row_has_all_of_its_devices(tmp_path, by):
    report = ullage.fleet(written(tmp_path / "s.parquet", 3), by=by)
    counted = sum(group.counted_hours for group in report.groups)
    least, most = (sum(group.counted_hours * group.ofu_bounds[edge] for group in report.groups) / counted for edge in (0, 1))
    assert least <= report.ofu_bounds[0] * (1 + 1e-9) and report.ofu_bounds[1] <= most * (1 + 1e-9)
    if by == "gpu":
        assert (least, most) == pytest.approx(report.ofu_bounds)
    assert all(low <= group.ofu <= high for group in report.groups for low, high in [group.ofu_bounds])


def test_a_report_that_was_kept_another_source_and_a_start_say_the_same(tmp_path):
    place = written(tmp_path / "s.parquet", 5)
    kept = tmp_path / "before.json"
    kept.write_text(json.dumps(hours_of(place, T0, T0 + HOUR, by="user")))
    asked = {"since": T0 + HOUR, "until": T0 + 2 * HOUR, "by": "user"}
    by_span = ullage.fleet(place, against="1h", **asked).against
    for other in (str(kept), "2026-08-10T00:00:00Z"):
        found = ullage.fleet(place, against=other, **asked).against
        assert found.ofu.change == pytest.approx(by_span.ofu.change)
        assert [(one.key, one.presence) for one in found.groups] == [(one.key, one.presence) for one in by_span.groups]
        for one, same in zip(found.steps, by_span.steps, strict=True):
            assert one.lost.bounds == pytest.approx(same.lost.bounds)
    itself = ullage.fleet(place, against=str(place), by="user").against
    assert itself.ofu.change is None and itself.gpu_hours.change == 0


def test_every_form_shows_what_changed(tmp_path):
    report = ullage.fleet(written(tmp_path / "s.parquet", 1), since=T0 + HOUR, against="1h")
    shown, page = text(view(report)), html(view(report))
    for words in ("Beside 2026-08-10 00:00 to 01:00 UTC", "new", "gone", "change, points"):
        assert words in shown and words in page
    assert record(ullage.fleet(tmp_path / "s.parquet"))["against"] is None


@pytest.mark.parametrize("text_", ["nothing", "0h", "-7d", "no-such-file.json", ""])
def test_what_is_nothing_to_compare_with_is_refused(text_):
    with pytest.raises(UllageError):
        other_report(text_)


def test_a_window_in_which_nothing_was_measured_and_a_file_that_is_no_report_are_named(tmp_path):
    place = written(tmp_path / "s.parquet", 2)
    with pytest.raises(UllageError, match="nothing to compare with in 2026-08-09"):
        ullage.fleet(place, against="1d")
    other = tmp_path / "other.json"
    other.write_text('{"complete": true, "ofu": 1}')
    with pytest.raises(UllageError, match=r"other\.json is no report of"):
        ullage.fleet(place, against=str(other))


def test_a_job_stands_beside_another_one(tmp_path):
    place = written(tmp_path / "s.parquet", 4)
    report = ullage.job("a", place, against="b")
    a, b = (ullage.job(name, place).fleet for name in "ab")
    assert report.against.ofu.now.value == pytest.approx(a.ofu) and report.against.ofu.before.value == pytest.approx(b.ofu)
    assert "Beside job b" in str(report)
    with pytest.raises(UllageError, match="name that, too"):
        ullage.job(setup="slurm", against="b")
