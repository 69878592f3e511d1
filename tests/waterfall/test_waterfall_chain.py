"""The chain as arithmetic: the product is the end for any evidence, merged factors say so, and the papers' jobs come out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.metrics.evidence import REST, Evidence, Held, Measured, Telemetry, TraceEvidence, compared, computed_sms, levels
from ullage.metrics.steps import FACTORS, LABELS, ChainStep
from ullage.metrics.telemetry import tree
from ullage.metrics.waterfall import waterfall
from ullage.render.waterfall import headline
from ullage.reports.waterfall.remedies import OWNERS, apart, remedies, whose
from ullage.reports.waterfall.waterfall import WaterfallReport, _cost

say = Measured.exact


def traced(balance=0.9, communication=0.8, orchestration=0.95, collectives=0.1, whole=True, held=None) -> TraceEvidence:
    parallel = balance * communication * orchestration
    return TraceEvidence(
        *(say(value, "trace") for value in (balance, communication, orchestration, parallel)),
        held=held or Held(Measured(0.0, 0.0, collectives, "trace"), 0.0, 1.0, None),
        busy=say(parallel + collectives, "trace"),
        busy_balance=say(1.0, "trace"),
        whole=whole,
    )


def gauges(sm: float | None = 0.6, gpus: int = 8, gr: float | None = 0.8, tensor: float | None = 0.4, ofu: float | None = 0.3) -> Telemetry:
    found = tree(ofu=ofu, tensor=tensor, sm=sm, sm_max=sm, gr=gr, gr_max=gr, tensor_max=tensor)
    return Telemetry(found, gpus, None if ofu is None else say(ofu, "telemetry"))


def names(evidence: Evidence) -> list[str]:
    return [step.name for step in waterfall(evidence).steps]


def test_a_trace_and_telemetry_give_each_of_the_six_factors_of_time():
    # PE = 0.9 × 0.8 × 0.95 = 0.684; SM fill 0.6 / 0.684, tensor issue 0.4 / 0.6, clock 0.3 / 0.4
    chain = waterfall(Evidence(telemetry=gauges(), trace=traced()))
    values = {step.name: round(step.factor.value, 4) for step in chain.steps}
    assert values == {
        "load_balance": 0.9,
        "communication": 0.8,
        "orchestration": 0.95,
        "sm_fill": 0.8772,
        "tensor_issue": 0.6667,
        "clock": 0.75,
    }
    assert (chain.reaches, chain.missing) == ("OFU", ("tile", "model"))


def test_sm_activity_above_the_time_of_computing_is_not_split():
    # the SMs are active for 0.8 of the time, 0.1 of it for collectives at most, and computing runs for 0.684
    assert names(Evidence(telemetry=gauges(sm=0.8), trace=traced())) == [
        "load_balance",
        "communication",
        "orchestration",
        "sm_fill_x_tensor_issue",
        "clock",
    ]


def test_sm_fill_lies_between_all_and_none_of_the_collectives_on_the_sms():
    fill = waterfall(Evidence(telemetry=gauges(), trace=traced())).step("sm_fill")
    assert fill is not None
    # of 0.6 at most 0.1 is the collectives'
    assert (fill.factor.low, fill.factor.high) == pytest.approx((0.5 / 0.684, 0.6 / 0.684))


def filled(sm: float, held: Held) -> Measured:
    step = waterfall(Evidence(telemetry=gauges(sm=sm), trace=traced(held=held))).step("sm_fill")
    assert step is not None
    return step.factor


def test_what_collectives_hold_while_kernels_compute_is_no_sm_fill():
    # SM activity 0.6, of which collectives hold just 0.12, most of it while kernels compute: (0.6 - 0.12) / 0.684
    exact = filled(0.6, Held(say(0.12, "trace"), 0.1, 1.0, None))
    assert (exact.value, exact.low, exact.high) == pytest.approx((0.48 / 0.684,) * 3)


def test_sm_fill_is_no_more_than_the_grids_have_blocks_for():
    held = Measured(0.12, 0.02, 0.12, "trace")
    # telemetry alone leaves 0.48 to 0.58; the grids allow 0.5 at most, unless telemetry says that they are of something else
    assert filled(0.6, Held(held, 0.1, 0.5, None)).high == pytest.approx(0.5 / 0.684)
    assert filled(0.6, Held(held, 0.1, 0.47, None)).high == pytest.approx(0.58 / 0.684)


def test_grids_say_where_sm_fill_is_between_the_bounds_of_telemetry_and_are_held_against_it_outside():
    held = Measured(0.12, 0.02, 0.12, "trace")
    inside, outside = (filled(0.6, Held(held, 0.1, 1.0, equal)) for equal in (0.55, 0.66))
    assert (inside.value, inside.source) == (pytest.approx(0.55 / 0.684), "grids")
    assert (outside.value, outside.source) == (pytest.approx(0.48 / 0.684), "telemetry")
    evidence = Evidence(telemetry=gauges(), trace=traced(held=Held(held, 0.1, 0.7, 0.66)))
    said = {d.what: d for d in waterfall(evidence).disagreements}["SMs that kernels are on"]
    assert (said.used.value, said.other.value, said.agree) == (pytest.approx(0.48), 0.66, False)  # 0.58 + 0.02 < 0.66


def test_gauges_that_are_not_exported_merge_their_factors():
    assert names(Evidence(telemetry=gauges(sm=None))) == [
        "load_balance",
        "orchestration",
        "communication_x_sm_fill_x_tensor_issue",
        "clock",
    ]
    assert names(Evidence(telemetry=gauges(sm=None, gr=None)))[1] == "communication_x_orchestration_x_sm_fill_x_tensor_issue"
    assert names(Evidence(telemetry=gauges(sm=None, gr=None, tensor=None))) == ["_x_".join(list(FACTORS)[:6])]


def test_tensor_activity_without_a_clock_leaves_the_clock_with_what_is_below():
    assert names(Evidence(telemetry=gauges(ofu=None), mfu=(say(0.2, "step"),)))[-1] == "clock_x_tile_x_model"
    assert waterfall(Evidence(telemetry=gauges(ofu=None))).reaches == "what is known"


def test_mfu_over_the_rest_takes_the_place_of_an_ofu_that_nobody_measured():
    evidence = Evidence(trace=traced(), tile=(say(0.9, "k"),), model=(say(0.75, "s"),), mfu=(say(0.3, "s"),))
    step = waterfall(evidence).step("sm_fill", "tensor_issue", "clock")
    assert step is not None
    assert step.factor.value == pytest.approx(0.3 / (0.684 * 0.9 * 0.75))


def test_a_tile_efficiency_that_nobody_measured_is_what_remains():
    chain = waterfall(Evidence(ofu=(say(0.4, "o"),), model=(say(0.75, "s"),), mfu=(say(0.27, "s"),)))
    tile = chain.step("tile")
    assert tile is not None and (tile.factor.value, tile.factor.source) == (pytest.approx(0.9), "what remains")
    assert chain.closure is None


def test_the_papers_world_model_closes_with_three_quarters_of_its_work_the_models():
    # OFU paper, section VI-C: OFU 34 %, 26 % reported, all layers recomputed: 34 × 3/4 = 25.5
    chain = waterfall(
        Evidence(ofu=(Measured.within(0.34, 0.03, "o"),), tile=(say(1.0, "t"),), model=(say(0.75, "s"),), mfu=(say(0.26, "r"),))
    )
    assert chain.closure is not None and chain.closure.closes
    assert chain.closure.expected.value == pytest.approx(0.255)
    assert chain.end.value == pytest.approx(0.255)
    assert chain.mfu is not None and chain.mfu.value == 0.26


@pytest.mark.parametrize(("ofu", "mfu"), [(0.2558, 0.5427), (0.1556, 0.2451)])
def test_the_papers_wrong_reports_do_not_close_and_the_rest_is_unexplained(ofu, mfu):
    # section V-C: FLOPs counted 2.94 times too high; layers of a hybrid counted as attention and a dense MLP
    chain = waterfall(
        Evidence(ofu=(Measured.within(ofu, 0.03, "o"),), tile=(say(0.98, "t"),), model=(say(1.0, "s"),), mfu=(say(mfu, "r"),))
    )
    assert chain.closure is not None and not chain.closure.closes
    rest = chain.step("unexplained")
    assert rest is not None and rest.factor.value == pytest.approx(mfu / ofu / 0.98)
    assert chain.end.value == mfu


def test_a_job_that_does_nothing_ends_at_zero():
    chain = waterfall(Evidence(telemetry=gauges(sm=0.0, gr=0.5, tensor=0.0, ofu=0.0), tile=(say(0.9, "k"),)))
    assert chain.end.value == 0
    assert [step.after.value for step in chain.steps][-1] == 0


def test_a_job_without_evidence_has_no_steps():
    assert waterfall(Evidence()).steps == ()


ratios = st.floats(0.01, 1.0)
maybe = st.none() | ratios
bounded = st.builds(
    lambda value, down, up: Measured(value, value * down, value * (1 + up), "x"), ratios, st.floats(0.5, 1), st.floats(0, 0.5)
)
several = st.lists(bounded, max_size=2).map(tuple)


@st.composite
def telemetries(draw) -> Telemetry:
    gr, sm, tensor, clock = draw(maybe), draw(maybe), draw(maybe), draw(st.floats(0.3, 1.2))
    ofu = None if draw(st.booleans()) else (draw(ratios) if tensor is None else tensor * clock)
    most = {
        name: None if mean is None else min(1.0, mean * draw(st.floats(1, 2))) for name, mean in (("gr", gr), ("sm", sm), ("t", tensor))
    }
    found = tree(ofu=ofu, tensor=tensor, sm=sm, sm_max=most["sm"], gr=gr, gr_max=most["gr"], tensor_max=most["t"])
    return Telemetry(found, draw(st.integers(1, 64)), None if ofu is None else Measured.within(ofu, 0.01, "telemetry"))


traces = st.builds(traced, ratios, ratios, ratios, st.floats(0, 0.5), st.booleans())
evidences = st.builds(
    Evidence,
    telemetry=st.none() | telemetries(),
    trace=st.none() | traces,
    ofu=several,
    tile=several,
    model=several,
    mfu=several,
    error=st.floats(0, 0.2),
)


@given(evidences)
def test_the_product_of_the_steps_is_the_end_whatever_is_known(evidence):
    chain = waterfall(evidence)
    assert math.prod(step.factor.value for step in chain.steps) == pytest.approx(chain.end.value, rel=1e-9)
    # walking from the peak, what steps take and what is left are the whole
    assert sum(step.lost for step in chain.steps) + chain.end.value == pytest.approx(1.0)


@given(evidences)
def test_each_factor_stands_in_one_step_or_is_said_to_be_missing(evidence):
    chain = waterfall(evidence)
    named = [name for step in chain.steps for name in step.names if name != "unexplained"]
    assert sorted([*named, *chain.missing]) == sorted(FACTORS)


@given(evidences)
def test_a_value_lies_between_its_bounds(evidence):
    for step in waterfall(evidence).steps:
        for one in (step.factor, step.after):
            assert one.low is None or one.low <= one.value * (1 + 1e-9)
            assert one.high is None or one.value <= one.high * (1 + 1e-9)


@given(evidences.filter(lambda e: e.mfu))
def test_a_measured_mfu_is_where_the_chain_ends_or_closes(evidence):
    chain = waterfall(evidence)
    assert chain.reaches == "MFU"
    if chain.closure is None or not chain.closure.closes:
        assert chain.end.value == pytest.approx(evidence.mfu[0].value)


@given(telemetries())
def test_levels_of_a_telemetry_tree_fall_to_its_ofu(telemetry):
    found = levels(telemetry.tree)
    if telemetry.ofu is not None:
        assert found["clock"] == pytest.approx(telemetry.ofu.value)


def test_levels_leave_out_what_a_gauge_is_missing_for():
    known = {"ofu": 0.27, "tensor": 0.3, "sm": 0.6, "sm_max": 0.7, "gr": 0.72, "gr_max": 0.8, "tensor_max": 0.4}

    def found(*missing: str) -> dict[str, float]:
        return {name: round(level, 6) for name, level in levels(tree(**{k: None if k in missing else v for k, v in known.items()})).items()}

    # without the engine's activity the balance is that of SMs, and merged factors stand under the last of them
    assert found("gr") == {"sm_fill": 0.6, "tensor_issue": 0.3, "clock": 0.27}
    assert found("ofu", "sm", "gr") == {"tensor_issue": 0.3}
    assert found("tensor") == {"clock": 0.27} and found("ofu", "tensor") == {}


def test_every_factor_has_an_owner_and_remedies_with_sources():
    for name in LABELS:
        owner = OWNERS[name]
        assert owner.whose and owner.lost and owner.remedies
        assert all(remedy.source.startswith(("https://", "docs/")) for remedy in owner.remedies)


def test_merged_steps_belong_to_all_their_owners_and_say_what_tells_them_apart():
    both = ("clock", "tile")
    assert whose(both) == "power, cooling; the shapes"
    assert remedies(both) == (*OWNERS["clock"].remedies, *OWNERS["tile"].remedies)
    assert [line.split(" ", 1)[0] for line in apart(both)] == ["telemetry", "the"]
    assert apart(("clock",)) == ()


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)).map(sorted), min_size=2, max_size=2),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_what_a_step_takes_lies_between_its_bounds_wherever_level_and_factor_do(edges, at, other):
    (low, value, high), (least, usual, most) = edges
    before, factor = Measured(value, low, high, "b"), Measured(usual, least, most, "f")
    between = ChainStep(("tile",), factor, before, before * factor).lost_between
    assert between is not None
    level, chosen = low + at * (high - low), least + other * (most - least)
    assert between[0] - 1e-12 <= level * (1 - chosen) <= between[1] + 1e-12


@pytest.mark.parametrize(("names", "most"), [(("tile",), 1.0), (("clock",), 1.2), (("clock", "tile"), 1.2), (("sm_fill", "tile"), 1.0)])
def test_what_remains_is_impossible_above_one_or_above_the_fastest_clock(names, most):
    def step(least: float | None, value: float = 2.0, source: str = REST) -> ChainStep:
        return ChainStep(names, Measured(value, least, 3.0, source), say(1.0, ""), say(1.0, ""))

    # a billionth is rounding
    assert not step(most).impossible and not step(most * (1 + 1e-9)).impossible and step(most * (1 + 1.1e-9)).impossible
    assert step(None).impossible and not step(None, value=most).impossible
    assert not step(2.0, source="telemetry").impossible


def test_a_step_of_four_factors_that_follow_each_other_is_named_by_its_ends():
    def short(*names: str) -> str:
        return ChainStep(names, say(1.0, ""), say(1.0, ""), say(1.0, "")).short

    assert short(*list(FACTORS)[:4]) == "load balance … SM fill"
    assert short(*list(FACTORS)[1:5]) == "communication … tensor issue"
    assert short(*list(FACTORS)[:3]) == "load balance × communication × orchestration"
    assert short(*list(FACTORS)[:3], "tensor_issue") == "load balance × communication × orchestration × tensor issue"


def test_two_values_agree_where_their_bounds_meet_or_are_hardly_apart():
    # from 0.4 to 0.5, and from 0.5 on; two points apart is still the same
    one = Measured(0.45, 0.4, 0.5, "")
    for low, agree in ((0.5, True), (0.5199, True), (0.5201, False)):
        other = Measured(low, low, 0.9, "")
        assert one.agrees(other) is other.agrees(one) is agree
    assert say(0.5, "").agrees(Measured(0.5, None, None, "")) and not say(0.5, "").agrees(Measured(0.5201, None, None, ""))


def test_collectives_hold_no_more_sms_than_are_active():
    held = Held(Measured(0.2, 0.05, 0.4, "trace"), 0.0, 1.0, None)
    found = computed_sms(0.3, held)
    assert (found.low, found.value, found.high) == pytest.approx((0.0, 0.1, 0.25))
    assert computed_sms(0.1, held).value == computed_sms(0.1, held).low == 0.0


def test_load_balance_is_compared_where_several_gpus_were_all_traced():
    def compares(gpus: int, whole: bool) -> bool:
        evidence = Evidence(telemetry=gauges(gpus=gpus), trace=traced(whole=whole))
        return "load balance of that time" in [one.what for one in compared(evidence)]

    assert [compares(gpus, whole) for gpus, whole in ((2, True), (1, True), (2, False))] == [True, False, False]


def test_the_clocks_factor_lies_between_those_of_ofus_bounds():
    # OFU 0.3, between 0.28 and 0.33, over tensor activity 0.4
    telemetry = replace(gauges(), ofu=Measured(0.3, 0.28, 0.33, "telemetry"))
    clock = waterfall(Evidence(telemetry=telemetry)).step("clock").factor
    assert (clock.low, clock.value, clock.high) == pytest.approx((0.7, 0.75, 0.825))
    unknown = replace(gauges(), ofu=Measured(0.3, None, None, "telemetry"))
    clock = waterfall(Evidence(telemetry=unknown)).step("clock").factor
    assert (clock.low, clock.value, clock.high) == (None, pytest.approx(0.75), None)


def test_a_gain_takes_less_than_nothing_between_its_bounds():
    # 0.6 to 0.8 times 1.1 to 1.2: of 0.8 a fifth is gained at most, of 0.6 a tenth at least; what is left of each says no more
    step = ChainStep(("tile",), Measured(1.15, 1.1, 1.2, ""), Measured(0.7, 0.6, 0.8, ""), Measured(0.8, 0.66, 0.96, ""))
    assert step.lost_between == pytest.approx((-0.16, -0.06)) and step.lost == pytest.approx(-0.1)
    # 0.6 to 0.8 before and 0.5 after is a loss of 0.1 to 0.3, whatever a factor of 0.2 to 0.9 allows; and so the other way round
    before, after = Measured(0.7, 0.6, 0.8, ""), Measured(0.5, 0.1, 0.7, "")
    assert ChainStep(("tile",), Measured(0.6, 0.2, 0.9, ""), before, say(0.5, "")).lost_between == pytest.approx((0.1, 0.3))
    assert ChainStep(("tile",), Measured(0.7, 0.6, 0.8, ""), before, after).lost_between == pytest.approx((0.12, 0.32))


def test_what_a_step_takes_is_not_known_where_an_error_is_not():
    unknown = Measured(0.5, None, None, "t")
    assert ChainStep(("tile",), unknown, say(1.0, "p"), unknown).lost_between is None


@pytest.mark.parametrize(
    ("collectives", "words"),
    [
        (0.0, "28.4 points are lost to tensor issue, the most of any step"),
        # SM activity of 0.6 may be a collective's by 0.005: tensor issue takes 19.5 to 20 points
        (0.005, "20.0 points are lost to tensor issue, the most of any step"),
        (0.015, "18.5 to 20.0 points are lost to tensor issue, the most of any step"),
        (0.025, "17.5 to 20.0 points are lost to tensor issue, and communication may take more (18.0)"),
        (0.1, "10.0 to 20.0 points are lost to tensor issue, and SM fill may take more (8.4 to 18.4)"),
    ],
)
def test_the_headline_ranks_by_what_is_certain(collectives, words):
    sm = 0.684 if collectives == 0.0 else 0.6
    chain = waterfall(Evidence(telemetry=gauges(sm=sm), trace=traced(collectives=collectives)))
    assert words in str(headline(reported(chain)))


def reported(chain):
    costs = tuple(_cost(step, None, None) for step in chain.steps)
    nothing = dict.fromkeys(("gpus", "gpu_hours", "price", "peak", "peak_source", "ceiling", "ceiling_share"))
    return WaterfallReport(chain, costs, **nothing, ceiling_source="", rests_on=(), notes=())
