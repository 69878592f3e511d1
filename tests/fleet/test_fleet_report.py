"""The fleet report on hand-made samples: groups, ledger, trust, agreement, what is missing."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import T0
from ullage.audit.trust import VERDICTS
from ullage.errors import UllageError
from ullage.render import fleet_document as as_json
from ullage.render.fleet import view
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.tables import JOBS, Flag
from ullage.views.text import text as as_text

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
HOUR = 3_600_000


def busy(**row):
    return {
        "tensor_active": 0.4,
        "sm_active": 0.6,
        "gr_active": 0.8,
        "gpu_util": 1.0,
        "sm_clock": 1372.5e6,
        "span_ms": HOUR,
        "time": T0 + HOUR,
    } | row


def idle(**row):
    return busy(tensor_active=0.0, sm_active=0.0, gr_active=0.0, gpu_util=0.0, sm_clock=1980e6) | row


def jobs(*rows):
    return pa.Table.from_pylist([{name: row.get(name) for name in JOBS.names} for row in rows], schema=JOBS)


def test_the_answer_is_over_the_whole_fleet_and_each_group_has_its_own(settled):
    # H100: 0.4 x 1372.5/1830 = 0.3; A100 at its tensor clock 1410: 0.5; two hours: 0.4
    rows = [busy(gpu="a", job="1", user="ann"), busy(gpu="b", job="2", user="bob", model=A100, tensor_active=0.5, sm_clock=1410e6)]
    report = fleet(settled(rows), None, FleetRequest())
    assert report.ofu == pytest.approx(0.4, rel=1e-6)
    assert {g.key: round(g.ofu, 6) for g in report.groups} == {"1": 0.3, "2": 0.5}
    assert report.by == "job"
    assert report.gpu_hours == pytest.approx(2)
    assert report.method == "sampled"
    by_user = fleet(settled(rows), None, FleetRequest(by="user"))
    assert {g.key for g in by_user.groups} == {"ann", "bob"}


def test_the_worst_ullage_comes_first(settled):
    rows = [busy(gpu="a", job="good", tensor_active=0.9), busy(gpu="b", job="bad", tensor_active=0.1)]
    assert [g.key for g in fleet(settled(rows), None, FleetRequest()).groups] == ["bad", "good"]


def test_the_ledger_adds_up_to_the_time_for_which_gpus_exist(settled):
    # a: job; b: held by 2, idle; c: nobody, idle; d: nobody, busy; e: two jobs at once; f: seen for half of the hour only
    rows = [
        busy(gpu="a", job="1"),
        idle(gpu="b", job="2"),
        idle(gpu="c"),
        busy(gpu="d"),
        busy(gpu="e", job="1,2", sharers=2),
        busy(gpu="f", job="1", span_ms=HOUR // 2),
    ]
    ledger = fleet(settled(rows), None, FleetRequest()).ledger
    assert ledger == pytest.approx({"job": 1.5, "shared": 1, "held_idle": 1, "free": 1, "not_sliced": 0, "unknown": 1, "total": 5.5})


def test_a_stuck_gpu_is_left_out_and_said(settled):
    rows = [busy(gpu="a", job="1"), idle(gpu="b", job="1", gpu_util=1.0, power=650)]
    report = fleet(settled(rows), None, FleetRequest())
    assert report.ofu == pytest.approx(0.3, rel=1e-6)
    assert report.ofu_all == pytest.approx(0.15, rel=1e-6)
    assert report.trusted_share == pytest.approx(0.5)
    assert [(v.gpu, v.verdict) for v in report.doubtful_series if not v.trusted] == [("b", "stuck at zero")]
    assert any("left out" in note for note in report.notes)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ({"flags": int(Flag.IMPOSSIBLE)}, "impossible"),
        ({"flags": int(Flag.SENTINEL)}, "sentinel"),
        ({"flags": int(Flag.UNIT_GUESSED)}, "wrong unit"),
        ({"flags": int(Flag.COPIED)}, "duplicated"),
        ({"flags": int(Flag.REPEATED), "span_ms": 15_000}, "duplicated"),
        ({"span_ms": 60_000}, "slow interval"),
        ({"span_ms": 30_000}, "ok"),
    ],
)
def test_each_verdict_has_its_evidence(settled, row, verdict):
    report = fleet(settled([busy(**({"span_ms": 30_000} | row))]), None, FleetRequest())
    assert list(report.verdicts) == [verdict]
    assert verdict in VERDICTS
    assert verdict == "ok" or report.doubtful_series[0].evidence


def test_two_models_under_one_uuid_are_impossible(settled):
    report = fleet(settled([busy(job="1"), busy(job="1", model=A100, time=T0 + 2 * HOUR)]), None, FleetRequest())
    assert list(report.verdicts) == ["impossible"]


def test_a_gpu_in_mig_mode_is_not_counted_twice(settled):
    rows = [busy(), busy(mig="3g.40gb/1"), busy(mig="4g.40gb/2")]
    report = fleet(settled(rows), None, FleetRequest())
    assert report.gpu_hours == pytest.approx(1)  # 3/7 + 4/7
    assert report.gpus == 1 and report.ledger["not_sliced"] == 0
    assert [group.gpus for group in fleet(settled(rows), None, FleetRequest(by="gpu")).groups] == [1]


def test_without_a_clock_there_is_a_bound_but_no_ofu(settled):
    report = fleet(settled([busy(sm_clock=None)]), None, FleetRequest())
    assert report.ofu is None
    assert report.tree.ofu is None
    assert any("at most" in note for note in report.notes)
    assert json.dumps(as_json.record(report), allow_nan=False)
    assert as_text(view(report)).startswith("OFU unknown")


def test_without_sm_active_two_factors_are_one_and_the_report_says_so(settled):
    report = fleet(settled([busy(sm_active=None)]), None, FleetRequest())
    assert [f.label for f in report.tree.factors] == ["load balance", "activity", "SM fill × tensor issue", "clock"]
    assert any("sm_active" in note for note in report.notes)


def test_a_gpu_that_nobody_knows_is_never_taken_for_another(settled):
    with pytest.raises(UllageError, match="H1000"):
        fleet(settled([busy(model="NVIDIA H1000")]), None, FleetRequest())
    mixed = fleet(settled([busy(gpu="a"), busy(gpu="b", model="NVIDIA H1000")]), None, FleetRequest())
    assert mixed.ofu == pytest.approx(0.3, rel=1e-6)
    assert any("H1000" in note for note in mixed.notes)


def test_a_gpu_without_a_name_can_be_named(settled):
    assert fleet(settled([busy(model=None)]), None, FleetRequest(gpu="A100")).ofu == pytest.approx(0.4 * 1372.5 / 1410, rel=1e-6)


def test_an_empty_window_is_an_error_that_says_what_to_do(settled):
    with pytest.raises(UllageError, match="no sample in the window"):
        fleet(settled([busy()]), None, FleetRequest(since=T0 + 10 * HOUR))


def test_the_first_sample_speaks_only_for_its_time_inside_the_window(settled):
    report = fleet(settled([busy(), busy(time=T0 + 2 * HOUR)]), None, FleetRequest(since=T0 + HOUR // 2))
    assert report.gpu_hours == pytest.approx(1.5)
    assert report.ledger["total"] == pytest.approx(1.5)


def test_an_unknown_key_is_answered_with_the_nearest(settled):
    with pytest.raises(UllageError, match="did you mean 'user'"):
        fleet(settled([busy()]), None, FleetRequest(by="usr"))


def test_hours_are_groups_too(settled):
    report = fleet(settled([busy(), busy(time=T0 + 2 * HOUR, tensor_active=0.8)]), None, FleetRequest(by="hour"))
    assert [(g.key, round(g.ofu, 6)) for g in sorted(report.groups, key=lambda g: g.key)] == [
        ("2026-08-10 00:00", 0.3),
        ("2026-08-10 01:00", 0.6),
    ]


def test_money_is_told_when_prices_are(settled):
    report = fleet(
        settled([busy(job="1"), idle(gpu="b", model=A100, job="1", sm_clock=1410e6)]), None, FleetRequest(prices={"H100": 2.0, "": 1.0})
    )
    # 1 h at 2 and 1 h at 1; ullage 0.7 h at 2 and 1 h at 1; idle 1 h at 1
    assert (report.money.cost, report.money.ullage_cost, report.money.idle_cost) == pytest.approx((3.0, 2.4, 1.0))
    assert fleet(settled([busy()]), None, FleetRequest()).money.cost is None


def test_table_three_compares_reported_mfu_with_ofu(settled):
    rows = [busy(gpu=f"g{n}", job=f"j{n // 2}") for n in range(6)] + [busy(gpu="x", job="solo", tensor_active=0.8)]
    told = jobs(
        {"job": "j0", "mfu": 0.3},
        {"job": "j1", "mfu": 0.5},
        {"job": "j2", "mfu": 0.34},
        {"job": "solo", "flops_per_gpu": 0.6 * 989.4e12},
        {"job": "gone", "mfu": 1},
    )
    found = fleet(settled(rows), told, FleetRequest()).agreement
    assert found is not None
    # OFU 0.3 each of two GPUs; errors 0, 20 and 4 points: mean 8, sample sd 10.58; solo: OFU 0.6, MFU 0.6
    assert [(r.gpus, r.jobs) for r in found.rows] == [(1, 1), (2, 3)]
    assert found.rows[1].error == pytest.approx(0.08, abs=1e-6)
    assert found.rows[1].error_deviation == pytest.approx(0.10583, abs=1e-5)
    assert found.rows[0].error == pytest.approx(0, abs=1e-4)
    assert found.within_10 == 0.75
    assert found.above_20 == pytest.approx(0.0)
    assert found.jobs[0].job == "j1"
    assert found.jobs[0].relative_error == pytest.approx(2 / 3, rel=1e-5)


@pytest.mark.parametrize(("other", "told"), [(0.31, False), (0.3101, True), (0.2899, True), (None, False)])
def test_the_mfu_that_is_named_first_counts_and_another_is_a_note(settled, other, told):
    report = fleet(settled([busy(job="j")]), jobs({"job": "j", "mfu": 0.3}, {"job": "j", "mfu": other}), FleetRequest())
    assert report.agreement is not None and report.agreement.mfu == 0.3
    notes = [note for note in report.notes if "reported an MFU" in note]
    assert notes == ([f"job j reported an MFU of 30.0 %, which counts, and {other * 100:.1f} % elsewhere in its records"] if told else [])
    assert len(as_json.record(report)["agreement"]["contradictions"]) == len(notes)


def test_hostile_names_come_out_harmless(settled):
    name = "\x1b[31m<script>alert(1)</script>\r\n\u202e"
    report = fleet(settled([busy(job=name, user=name, host=name)]), None, FleetRequest())
    text, data = as_text(view(report)), json.dumps(as_json.record(report))
    assert "\x1b" not in text and "\r" not in text and "\u202e" not in text
    assert "\x1b" not in data


def test_the_json_contract_holds(settled):
    data = as_json.record(fleet(settled([busy(job="1")]), None, FleetRequest()))
    assert {"ofu", "method", "gpu_hours", "trusted_share", "window", "tree", "ledger", "groups", "notes"} <= set(data)
    assert {"key", "ofu", "gpu_hours", "tree"} <= set(data["groups"][0])
    assert data["method"] in ("sampled", "exact")
    assert 0 <= data["ofu"] <= 1
    factors = [f["value"] for f in data["tree"]["factors"]]
    product = 1.0
    for factor in factors:
        product *= factor
    assert product == pytest.approx(data["tree"]["ofu"])


def test_the_text_report_begins_with_the_answer(settled):
    text = as_text(view(fleet(settled([busy(job="1")]), None, FleetRequest(command="ullage fleet x"))), width=110)
    answer, when = "OFU 30.0 % of 1.00 GPU-hours (all of them trusted)", "2026-08-10 00:00 to 01:00 UTC"
    assert text.splitlines()[0] == answer + when.rjust(110 - len(answer))


@pytest.mark.parametrize("seed", range(5))
def test_the_bounds_of_ofu_hold_where_the_clock_follows_the_work(settled, seed):
    # tensor pipes work in a random share of each 30 s, at 1,450 MHz, and between the clock is 1,980: the sampled product is too high
    from ullage.reports.waterfall.evidence import telemetry

    dice, rows, active = np.random.default_rng(seed), [], 0.0
    for gpu in range(4):
        for number in range(1, 121):
            share = dice.uniform(0.3, 0.9)
            active += share
            clock = 1450e6 if dice.random() < share else 1980e6
            time = T0 + 30_000 * number
            rows.append(busy(gpu=f"g{gpu}", job="j", tensor_active=0.7 * share, sm_clock=clock, span_ms=30_000, time=time))
    truth = 0.7 * active / 480 * 1450 / 1830
    report = fleet(settled(rows), None, FleetRequest(one_job=True))
    assert report.ofu is not None and report.ofu > 1.05 * truth
    assert report.ofu_bounds is not None and report.ofu_bounds[0] <= truth * (1 + 1e-6) and report.ofu <= report.ofu_bounds[1]
    said = telemetry(report, 0.03)
    assert said is not None and said.ofu is not None and said.ofu.low <= truth * (1 + 1e-6) <= said.ofu.high
    assert as_json.record(report)["ofu_bounds"] == list(report.ofu_bounds)
