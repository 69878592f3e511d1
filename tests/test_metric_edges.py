"""Metrics at their edges: figures in which × is not ÷ and + is not −, one side known, thresholds from both sides."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ullage.metrics.bounds import device_bounds, host_bounds
from ullage.metrics.evidence import SAME, Evidence, Held, Measured, Telemetry, TraceEvidence
from ullage.metrics.kernel_losses import KernelCeilings, KernelWork, kernel_loss
from ullage.metrics.losses import bill
from ullage.metrics.metric import ratio
from ullage.metrics.roofs import pipe_utilization
from ullage.metrics.steps import ChainStep, Walk
from ullage.metrics.telemetry import chain, step_losses, tree
from ullage.metrics.tree import Node
from ullage.metrics.trees import host_load_balance, mpi_parallel_efficiency
from ullage.metrics.waterfall import waterfall

say = Measured.exact


def gauges(ofu, tensor, sm, gr):
    """Return the tree of a job whose GPUs are all alike."""
    return tree(ofu=ofu, tensor=tensor, sm=sm, sm_max=sm, gr=gr, gr_max=gr, tensor_max=tensor)


# --- bounds ---


def communication(most_collective=None, most_memory=None):
    """One device computes for 80 to 95 of the 90 to 100 s in which it is active."""
    both = [(90, 100)]
    return device_bounds([(80, 95)], both, both, (100, 100), most_collective=most_collective, most_memory=most_memory)[
        "device_communication_efficiency"
    ]


def test_the_most_of_collectives_and_copies_together_bounds_what_communication_costs():
    # at most 4 + 5 of at least 90 s: 81 / 90 at least; where either has no limit, 80 of 100
    assert communication([4], [5]) == pytest.approx((0.9, 1.0))
    assert communication([4], None) == communication(None, [5]) == communication() == pytest.approx((0.8, 1.0))


def test_what_is_not_said_of_collectives_and_copies_is_nothing():
    # the same 40 to 60 s are kernels, collectives and copies: nothing is lost between them, at most
    found = device_bounds([(40, 60)], [(40, 60)], [(40, 60)], (100, 100))
    assert [found[name][1] for name in ("collective_efficiency", "copy_efficiency", "device_communication_efficiency")] == [1.0] * 3


def test_time_off_the_processor_is_no_time_in_which_a_device_was_waited_for():
    # of 80 s busy 20 are off the processor: useful 30 to 40 of 60
    found = host_bounds([(30, 40)], [(80, 80)], (100, 100), [20])
    assert found["device_offload_efficiency"] == pytest.approx((0.5, 2 / 3))
    assert found["on_cpu_efficiency"] == pytest.approx((0.75, 0.75))
    # a clock of steps: 70 to 80 s busy, so 50 to 60 on the processor
    assert host_bounds([(30, 40)], [(70, 80)], (100, 100), [20])["device_offload_efficiency"] == pytest.approx((0.5, 0.8))


# --- hosts, roofs, ratios ---


def test_time_off_the_processor_counts_for_the_communication_of_processes():
    # two processes over 100 s: useful 60, in the GPU's interface 60, off the processor 40; the busier one is busy for 90
    assert mpi_parallel_efficiency(useful_time=60, offload_time=60, processes=2, elapsed=100, off_time=40) == 0.8
    assert host_load_balance(useful_time=60, offload_time=60, processes=2, max_busy_time=80, off_time=40) == 1.0


def test_a_pipe_at_half_of_its_clock_is_used_half_as_much():
    assert pipe_utilization(pipe_active=0.5, sm_clock=0.7e9, highest_sm_clock=1.4e9) == 0.25


def test_one_array_is_enough_for_a_ratio_of_arrays():
    assert ratio(np.array([1.0, 2.0]), 4).tolist() == [0.25, 0.5]
    assert ratio(1, np.array([4.0, 0.0])).tolist() == pytest.approx([0.25, math.nan], nan_ok=True)


# --- kernels ---


def test_flops_without_a_peak_need_no_time_of_which_a_kernel_could_be_short():
    loss = kernel_loss(KernelWork(8, 200, bytes=60), KernelCeilings(peak=0, bandwidth=10))
    assert loss.steps == {"memory": 6.0, "itself": 2.0}


# --- losses ---


def leaf(name, value):
    return Node(name, name, value, value, value)


def test_a_whole_of_nothing_has_lost_everything_in_the_part_that_is_nothing():
    found = bill(Node("whole", "whole", 0.0, 0.0, 0.0, (leaf("balance", 0.0), leaf("copies", 0.5))), 100 * 10**9)
    assert [(part.share, part.seconds) for part in found.losses] == [(1.0, 100.0), (0.0, 0.0)]


def test_gains_and_losses_that_cancel_cost_seconds_by_their_logarithms_alone():
    # 2 × 0.5 = 1: nothing is lost, ln 2 s of each second gained and lost again
    found = bill(Node("whole", "whole", 1.0, 1.0, 1.0, (leaf("balance", 2.0), leaf("copies", 0.5))), 10 * 10**9)
    assert [part.share for part in found.losses] == [None, None]
    assert [part.seconds for part in found.losses] == pytest.approx([-10 * math.log(2), 10 * math.log(2)], rel=1e-12)


def test_what_is_not_known_takes_the_place_of_the_first_of_it_and_never_less_than_nothing():
    unknown = [Node(name, name, None, None, None) for name in ("balance", "copies")]
    found = bill(Node("whole", "whole", 0.5, 0.5, 0.5, (unknown[0], leaf("orchestration", 0.25), unknown[1])), 100 * 10**9)
    # a quarter is known where half is lost: nothing is left for the others
    assert [(part.metric, part.share, part.seconds) for part in found.losses] == [
        ("balance_x_copies", 0.0, 0.0),
        ("orchestration", 1.0, 50.0),
    ]


def test_of_a_whole_of_nothing_a_gain_gives_nothing_back():
    found = bill(Node("whole", "whole", 0.0, 0.0, 0.0, (leaf("balance", 2.0),)), 100 * 10**9)
    assert [(part.share, abs(part.seconds)) for part in found.losses] == [(None, 0.0)]


# --- telemetry ---


def test_rows_of_less_than_a_second_lose_as_others_do():
    gr = np.array([0.5])
    most = {name: np.full(1, value) for name, value in (("gr", 0.5), ("sm", 0.4), ("tensor", 0.2))}
    means = {"gr": gr, "sm": np.array([0.4]), "tensor": np.array([0.2]), "ofu": np.array([0.1])}
    found = {name: lost.tolist() for name, lost in step_losses(np.array([0.5]), means, most).items() if not np.isnan(lost).all()}
    assert {name: round(lost[0], 9) for name, lost in found.items()} == {
        "load_balance": 0.0,
        "activity": 0.25,
        "sm_fill": 0.05,
        "tensor_issue": 0.1,
        "clock": 0.05,
    }
    assert [factor.value for factor in chain(0.5, 0.25, {"activity": 0.25}).factors] == [0.5]
    assert chain(0.0, 0.25, {"activity": 0.0}).factors == ()


def test_a_row_without_the_gauge_of_sms_loses_fill_and_issue_together():
    most = {name: np.full(1, value) for name, value in (("gr", 0.5), ("sm", math.nan), ("tensor", 0.2))}
    means = {"gr": np.array([0.5]), "sm": np.array([math.nan]), "tensor": np.array([0.2]), "ofu": np.array([0.2])}
    found = {name for name, lost in step_losses(np.array([100.0]), means, most).items() if not np.isnan(lost).all()}
    assert found == {"load_balance", "activity", "sm_fill_x_tensor_issue", "clock"}


@pytest.mark.parametrize(
    ("by", "steps"), [("sm", {"activity_x_sm_fill", "tensor_issue"}), ("tensor", {"activity_x_sm_fill_x_tensor_issue"})]
)
def test_a_gauge_by_which_a_job_is_not_compared_splits_no_step(by, steps):
    # all of the row's gauges are known; the job's GPUs are compared by one, since others lack the rest
    most = {name: np.full(1, math.nan) for name in ("gr", "sm", "tensor")} | {by: np.full(1, 0.4), "tensor": np.full(1, 0.2)}
    means = {"gr": np.array([0.5]), "sm": np.array([0.4]), "tensor": np.array([0.2]), "ofu": np.array([0.2])}
    found = {name for name, lost in step_losses(np.array([100.0]), means, most).items() if not np.isnan(lost).all()}
    assert found == {"load_balance", "clock"} | steps


# --- the waterfall ---


def test_values_with_one_known_bound_agree_where_that_reaches():
    assert Measured(0.5, None, 0.7, "a").agrees(say(0.65, "b"))
    assert not Measured(0.5, None, 0.7, "a").agrees(say(0.4, "b"))
    assert Measured(0.5, 0.3, None, "a").agrees(say(0.4, "b"))
    assert not Measured(0.5, 0.3, None, "a").agrees(say(0.65, "b"))
    assert say(0.65, "b").agrees(Measured(0.5, None, 0.7, "a")) and not say(0.4, "b").agrees(Measured(0.5, None, 0.7, "a"))


def test_values_that_are_just_so_far_apart_that_they_may_be_the_same_agree():
    assert say(0.0, "a").agrees(say(SAME, "b")) and say(SAME, "a").agrees(say(0.0, "b"))
    assert not say(0.0, "a").agrees(say(2 * SAME, "b")) and not say(2 * SAME, "a").agrees(say(0.0, "b"))


def test_what_a_step_takes_needs_both_bounds_of_each_level():
    assert ChainStep(("tile",), Measured(0.5, 0.4, None, ""), say(0.8, ""), say(0.4, "")).lost_between is None


def test_once_nothing_is_left_no_step_is_taken():
    walk = Walk()
    walk.times(["tile"], say(0.0, "a"))
    walk.times(["model"], say(0.5, "a"))
    assert [step.names for step in walk.steps] == [("tile",)]


def test_ofu_is_that_of_the_gauges_and_of_others_beside_it():
    seen = Telemetry(gauges(0.3, 0.4, 0.6, 0.8), 1, say(0.3, "telemetry"))
    assert [ofu.value for ofu in Evidence(telemetry=seen, ofu=(say(0.2, "report"),)).ofus] == [0.3, 0.2]


def test_the_error_of_ofu_counts_once_where_the_chain_goes_on_from_it():
    ofu = (say(0.4, "ofu"),)
    alone = waterfall(Evidence(ofu=ofu, error=0.1)).end
    assert (alone.low, alone.high) == (0.4, 0.4)  # nothing but OFU is asked
    tiled = waterfall(Evidence(ofu=ofu, tile=(say(0.5, "grid"),), error=0.1)).end
    assert (tiled.low, tiled.high) == pytest.approx((0.18, 0.22))


def test_without_ofu_the_last_known_step_ends_where_mfu_was_measured():
    mfu = Measured(0.3, 0.25, 0.35, "step")
    steps = waterfall(Evidence(tile=(say(0.8, "grid"),), model=(say(0.75, "step"),), mfu=(mfu,))).steps
    assert [step.names for step in steps[-2:]] == [("tile",), ("model",)]
    assert (steps[-1].after.low, steps[-1].after.high) == (0.25, 0.35)  # MFU as measured
    assert (steps[-2].after.low, steps[-2].after.high) == pytest.approx((0.25 / 0.75, 0.35 / 0.75))


def test_a_chain_that_contradicts_mfu_says_what_all_else_allows():
    # OFU 0.4 × tile 0.5 × model 0.75 = 0.15 is expected, 0.3 was reported; OFU's error is 0
    known = {"ofu": (say(0.4, "ofu"),), "tile": (say(0.5, "grid"),), "model": (say(0.75, "step"),)}
    wrong = waterfall(Evidence(**known, mfu=(say(0.3, "report"),), error=0.0))
    assert wrong.ends == "MFU" and wrong.closure is not None and not wrong.closure.closes
    assert wrong.allowed is not None and wrong.allowed.value == pytest.approx(0.15)
    right = waterfall(Evidence(**known, mfu=(Measured(0.16, 0.15, 0.17, "report"),), error=0.0))
    assert right.closure is not None and right.closure.closes and right.allowed is None
    assert right.ends == "expected MFU"  # the chain comes to 0.15, not to the 0.16 that was measured
    assert waterfall(Evidence(ofu=(say(0.4, "ofu"),))).ends == "OFU"


def test_an_impossible_rest_says_how_much_mfu_the_others_allow():
    # MFU 0.5 of OFU 0.4 leaves 1.25 for tile and model: 0.5 / 1.25 = 0.4 is allowed
    found = waterfall(Evidence(ofu=(say(0.4, "ofu"),), mfu=(say(0.5, "report"),), error=0.0))
    assert found.closure is None and found.allowed is not None and found.allowed.value == pytest.approx(0.4)
    assert waterfall(Evidence(ofu=(say(0.4, "ofu"),), mfu=(say(0.3, "report"),), error=0.0)).allowed is None


@pytest.mark.parametrize(("mfu", "closes"), [(0.125, True), (0.1249, False), (0.25, True), (0.2501, False)])
def test_a_chain_closes_up_to_both_ends_of_what_is_expected(mfu, closes):
    # 0.5 × 0.5 × (0.5 to 1) = 0.125 to 0.25
    known = {"ofu": (say(0.5, "ofu"),), "tile": (say(0.5, "grid"),), "model": (Measured(0.75, 0.5, 1.0, "step"),)}
    found = waterfall(Evidence(**known, mfu=(Measured(mfu, None, None, "report"),), error=0.0)).closure
    assert found is not None and found.closes == closes


def test_a_telemetry_chain_of_one_gpu_has_levels_and_of_several_none_with_bounds():
    alone, many = (Telemetry(gauges(0.3, 0.4, 0.6, 0.8), n, say(0.3, "t")) for n in (1, 8))
    first = waterfall(Evidence(telemetry=alone)).steps[0]
    assert (first.after.low, first.after.high) == (first.after.value,) * 2
    several = waterfall(Evidence(telemetry=many)).steps
    assert several[0].factor.low is None and [step.names for step in several][-1] == ("clock",)


def test_tensor_pipes_that_stood_still_leave_sm_fill_and_issue_untold_apart():
    parallel = say(0.5, "trace")
    held = Held(Measured(0.0, 0.0, 0.1, "trace"), 0.0, 1.0, None)
    trace = TraceEvidence(say(1.0, "trace"), say(1.0, "trace"), parallel, parallel, held, parallel, say(1.0, "trace"))
    idle = Telemetry(gauges(0.0, 0.0, 0.4, 0.8), 1, say(0.0, "telemetry"))
    names = [step.names for step in waterfall(Evidence(telemetry=idle, trace=trace)).steps]
    assert ("sm_fill", "tensor_issue") in names and ("sm_fill",) not in names
    assert ("load_balance",) in names  # a trace is of the whole job unless said otherwise


def test_sm_fill_lies_between_those_of_the_least_and_the_most_time_of_computing():
    parallel, held = Measured(0.5, 0.4, 0.6, "trace"), Held(say(0.0, "trace"), 0.0, 1.0, None)
    trace = TraceEvidence(say(1.0, "trace"), say(1.0, "trace"), parallel, parallel, held, parallel, say(1.0, "trace"))
    fill = waterfall(Evidence(telemetry=Telemetry(gauges(0.2, 0.2, 0.3, 0.5), 1, say(0.2, "t")), trace=trace)).step("sm_fill")
    assert fill is not None
    assert (fill.factor.value, fill.factor.low, fill.factor.high) == pytest.approx((0.6, 0.5, 0.75))


def test_of_several_sources_of_a_factor_the_first_counts():
    found = waterfall(Evidence(ofu=(say(0.4, "ofu"),), tile=(say(0.5, "grid"), say(0.9, "shapes")))).step("tile")
    assert found is not None and found.factor.value == 0.5
