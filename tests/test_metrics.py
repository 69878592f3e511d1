"""Equations: each has a worked example, parents are products, and the papers' own numbers come out."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage.metrics
from ullage.metrics.agreement import pearson, relative_error
from ullage.metrics.clocks import sampled_ofu_bounds, sampling_noise
from ullage.metrics.collectives import crossings
from ullage.metrics.host import HOST, host_tree
from ullage.metrics.instructions import host_instructions
from ullage.metrics.metric import METRICS, ratio
from ullage.metrics.ofu import counted_units, sampled_ofu
from ullage.metrics.telemetry import LABELS, WHOSE, chain, credible, step_losses, tree
from ullage.metrics.tree import Node, widened
from ullage.reports.waterfall import remedies
from ullage.totals import Factors, HostTotals

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_has_a_unit_a_source_a_page_and_an_example(name):
    metric = METRICS[name]
    assert metric.unit
    assert metric.source
    assert metric.summary.endswith(".") or metric.summary.endswith(":")
    assert doctest.DocTestFinder().find(metric.function)[0].examples
    assert metric.equation


def test_the_guide_says_whose_work_each_factor_is_as_reports_do():
    rows = (
        line.split(" | ") for line in (DOCS / "fleet-report.md").read_text().splitlines() if line.startswith("| ") and line.count("|") == 4
    )
    said = {row[0].removeprefix("| "): row[2].removesuffix(" |") for row in rows}
    assert {LABELS[name]: whose for name, whose in WHOSE.items()}.items() <= said.items()
    assert {*WHOSE} == {*LABELS} and all(remedies.OWNERS[name].whose == whose for name, whose in WHOSE.items() if name in remedies.OWNERS)


def test_every_module_of_the_folder_is_loaded_by_the_registry():
    METRICS.load()
    for module in pkgutil.iter_modules(ullage.metrics.__path__):
        assert importlib.import_module(f"ullage.metrics.{module.name}")


def test_a_metric_takes_numbers_arrays_and_columns_alike():
    import ibis

    assert sampled_ofu(0.5, 915e6, 1830e6) == 0.25
    assert sampled_ofu(np.array([0.5, 1.0]), np.array([915e6, 1830e6]), 1830e6).tolist() == [0.25, 1.0]
    column = ibis.memtable({"t": [0.5], "c": [915e6]})
    assert sampled_ofu(column.t, column.c, 1830e6).to_pyarrow().to_pylist() == [0.25]


def test_without_a_denominator_there_is_no_value():
    assert ratio(1, 0) is None
    assert np.isnan(ratio(np.array([1.0]), np.array([0.0])))[0]


def test_the_papers_errors_of_wrong_mfu_come_out():
    # OFU paper, section V-C: 54.27 against 25.58 is 112.2 %, 18.45 is -27.9 %, 24.51 against 15.56 is 57.5 %
    assert relative_error(54.27, 25.58) == pytest.approx(1.122, abs=5e-4)
    assert relative_error(18.45, 25.58) == pytest.approx(-0.279, abs=5e-4)
    assert relative_error(24.51, 15.56) == pytest.approx(0.575, abs=5e-4)


share = st.floats(0.01, 1)


@given(share, share, share, share, share, st.booleans(), st.booleans())
def test_a_tree_is_the_product_of_its_factors_whatever_is_exported(gr_max, balance, fill, issue, clock, has_gr, has_sm):
    gr = gr_max * balance
    sm = gr * fill
    tensor = sm * issue
    chain = tree(
        ofu=tensor * clock,
        tensor=tensor,
        tensor_max=min(1.0, tensor * 1.5),
        sm=sm if has_sm else None,
        sm_max=min(1.0, sm * 1.2) if has_sm else None,
        gr=gr if has_gr else None,
        gr_max=gr_max if has_gr else None,
    )
    assert np.prod([f.value for f in chain.factors]) == pytest.approx(tensor * clock)
    assert sum(lost for _, lost in chain.losses(1000.0)) == pytest.approx(1000 * (1 - tensor * clock))
    assert {name for f in chain.factors for name in f.stands_for} == {"load_balance", "activity", "sm_fill", "tensor_issue", "clock"}


def test_sampling_noise_of_the_papers_clock_stays_under_its_bound():
    # OFU paper, IV-C: clock mean 1352, sd 32 MHz, over 3000 s; at 30 s the 95 % bound is under 0.22 points
    rng = np.random.default_rng(0)
    ofu = sampled_ofu(0.95, np.clip(rng.normal(1352e6, 32e6, 3000), 1201e6, 1558e6), 2062e6)
    for every, bound in ((5, 0.0007), (10, 0.0018), (20, 0.0022), (30, 0.0022)):
        found = sampling_noise(ofu, 1.0, every)
        assert found.phases == every
        assert 0 < found.mean_deviation <= found.bound
        assert found.bound < bound * 3  # white noise of this width at 3000/every samples: sd = 1.6 points / sqrt(n)


def test_correlation_needs_three_points_and_a_spread():
    assert pearson(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert pearson(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])) is None
    assert pearson(np.array([1.0, 2.0, 2.0]), np.array([3.0, 3.0, 3.0])) is None
    # of 1, 2, 3 beside 1, 3, 2 half is common: covariance 0.5, variances 1 and 1
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])) == pytest.approx(0.5)
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0, 2.0])) == pytest.approx(-0.5)


# the examples of the pages leave some parameters at 0 or 1, where a product is its factor and a sum its term; none is here
EQUATIONS = {
    "bus_bandwidth": ({"size": 6, "seconds": 2, "link_crossings": 1.5}, 4.5),
    "drift_beyond_clock": ({"now": 30, "before": 10, "clock_now": 4, "clock_before": 2}, 0.5),  # three times the rate, twice the clock
    "generation_bound": ({"batch": 4, "bandwidth": 30, "weight_bytes": 7, "cache_bytes": 5}, 10),
    "mfu": ({"model_flops": 120, "step_time": 5, "gpus": 2, "peak": 16}, 0.75),
    "hfu": ({"executed_flops": 120, "step_time": 5, "gpus": 2, "peak": 16}, 0.75),
    "flops_per_gpu": ({"model_flops": 120, "step_time": 5, "gpus": 2}, 12),
    "exact_ofu": ({"tensor_cycles": 90, "seconds": 5, "tensor_clock": 12, "units": 3}, 0.5),
    "mean_sm_clock": ({"sm_cycles": 90, "seconds": 5, "units": 3}, 6),
    "hybrid_mpi_parallel_efficiency": (
        {"useful_time": 15, "offload_time": 3, "parallel_time": 7, "off_time": 5, "processes": 4, "elapsed": 10}, 0.75),
    "hybrid_load_balance": (
        {"useful_time": 15, "offload_time": 3, "parallel_time": 7, "off_time": 5, "processes": 4, "max_busy_time": 10}, 0.75),
    "on_cpu_efficiency": ({"useful_time": 8, "offload_time": 3, "parallel_time": 4, "off_time": 5}, 0.75),
    "openmp_parallel_efficiency": ({"useful_time": 20, "offload_time": 4, "parallel_time": 8}, 0.75),
    "openmp_serialisation_efficiency": ({"useful_time": 20, "offload_time": 4, "openmp_serialisation_time": 8}, 0.75),
    "openmp_load_balance": (
        {"useful_time": 20, "offload_time": 3, "openmp_serialisation_time": 7, "openmp_imbalance_time": 10}, 0.75),
    "openmp_scheduling_efficiency": (
        {"useful_time": 20, "offload_time": 3, "parallel_time": 17, "openmp_scheduling_time": 10}, 0.75),
    "global_efficiency": ({"reference_useful_time": 15, "work_growth": 2, "processes": 4, "elapsed": 10}, 0.75),
    "computation_scalability": ({"reference_useful_time": 15, "useful_time": 40, "work_growth": 2}, 0.75),
    "instruction_scaling": ({"reference_instructions": 15, "instructions": 40, "work_growth": 2}, 0.75),
    "ipc_scaling": ({"reference_instructions": 10, "reference_cycles": 5, "instructions": 12, "cycles": 8}, 0.75),
    "frequency_scaling": ({"reference_cycles": 20, "reference_useful_time": 5, "cycles": 24, "useful_time": 8}, 0.75),
    "device_global_efficiency": ({"reference_kernel_time": 15, "work_growth": 2, "devices": 4, "elapsed": 10}, 0.75),
    "kernel_time_scaling": ({"reference_kernel_time": 15, "kernel_time": 40, "work_growth": 2}, 0.75),
    "launch_scaling": ({"reference_launches": 15, "launches": 40, "work_growth": 2}, 0.75),
    "launch_time_scaling": ({"reference_kernel_time": 6, "reference_launches": 2, "kernel_time": 20, "launches": 5}, 0.75),
    "bytes_scaling": ({"reference_bytes": 15, "bytes": 40, "work_growth": 2}, 0.75),
    "speedup": ({"reference_elapsed": 15, "elapsed": 40, "work_growth": 2}, 0.75),
    "scaling_efficiency": ({"reference_elapsed": 15, "elapsed": 10, "work_growth": 2, "resource_growth": 4}, 0.75),
    "straggler_share": ({"step_time": 13, "step_time_without": 7, "ideal_step_time": 5}, 0.75),
    "gemm_flops": ({"m": 3, "n": 5, "k": 7}, 210),
    "effective_size": ({"size": 300, "tile": 64, "cluster": 3}, 384),  # 5 tiles, 2 clusters of 3
    "wave_efficiency": ({"blocks": 15, "slots": 10}, 0.75),
    "mpi_parallel_efficiency": ({"useful_time": 18, "offload_time": 7, "off_time": 5, "processes": 4, "elapsed": 10}, 0.75),
    "host_load_balance": ({"useful_time": 18, "offload_time": 7, "off_time": 5, "processes": 4, "max_busy_time": 10}, 0.75),
    "host_parallel_efficiency": ({"useful_time": 30, "processes": 4, "elapsed": 10}, 0.75),
    "device_parallel_efficiency": ({"kernel_time": 30, "devices": 4, "elapsed": 10}, 0.75),
    "device_load_balance": ({"kernel_time": 30, "devices": 4, "max_kernel_time": 10}, 0.75),
    "expected_mfu": ({"ofu": 0.8, "tile_efficiency": 0.75, "model_efficiency": 0.5}, 0.3),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUATIONS)
def test_an_equation_uses_each_of_its_parameters(name):
    METRICS.load()
    given_, expected = EQUATIONS[name]
    assert set(METRICS[name].parameters) == set(given_)
    assert METRICS[name].function(**given_) == pytest.approx(expected)


def test_bounds_by_device_are_sums_over_its_levels_of_activity():
    # the first device as on the page; the second is twice as long at rest as at 0.9, at 0.5 to 2 GHz; tensor clock 1.5 GHz
    tensor, time = np.array([[0.0, 0.6], [0.0, 0.9]]), np.array([[1.0, 1.0], [2.0, 1.0]])
    lowest, highest = np.array([[1.8, 1.2], [1.0, 0.5]]), np.array([[1.8, 1.8], [1.0, 2.0]])
    low, high = sampled_ofu_bounds(tensor, time, lowest, highest, 1.5)
    assert low.tolist() == pytest.approx([0.6 * 1.2 / 3, 0.9 * 0.5 / 4.5])
    assert high.tolist() == pytest.approx([0.6 * 1.8 / 3, 0.9 * 2.0 / 4.5])


def test_two_ranks_are_the_fewest_that_a_collective_has():
    assert [crossings("allreduce", ranks) for ranks in (1, 2, 3)] == [None, 1.0, pytest.approx(4 / 3)]
    for operation in ("alltoall", "reducescatter", "allgather"):
        assert [crossings(operation, ranks) for ranks in (1, 2, 4)] == [None, 0.5, 0.75]
    assert crossings("reduce", 2) == 1.0 and crossings("barrier", 2) is None


def test_the_tree_of_the_hosts_has_the_factors_that_the_program_can_have():
    def names(tree):
        return [(child.metric, [below.metric for below in child.children]) for child in tree.children]

    mpi, hybrid = (
        (f"{kind}mpi_parallel_efficiency", ["host_communication_efficiency", balance])
        for kind, balance in (("", "host_load_balance"), ("hybrid_", "hybrid_load_balance"))
    )
    offload = ("device_offload_efficiency", [])
    openmp = (
        "openmp_parallel_efficiency",
        [f"openmp_{what}" for what in ("load_balance", "scheduling_efficiency", "serialisation_efficiency")],
    )
    alone = [(metric, []) for metric in mpi[1]]
    assert names(HOST) == names(host_tree(Factors(mpi=True, devices=True))) == [mpi, offload]
    assert names(host_tree(Factors(mpi=True, openmp=True))) == [hybrid, openmp]
    assert names(host_tree(Factors(mpi=True))) == names(host_tree(Factors(processes=True))) == alone
    assert names(host_tree(Factors(processes=True, devices=True))) == [*alone, offload]
    assert names(host_tree(Factors(openmp=True))) == [(metric, []) for metric in openmp[1]]
    assert names(host_tree(Factors())) == []


def test_a_value_is_stated_where_its_bounds_are_at_most_a_fifth_apart():
    def node(low, high, doubt=None):
        return Node("speedup", "", 0.5, low, high, doubt=doubt)

    assert node(0.25, 0.4375).certain and node(0.25, 0.25 + 0.2).certain and not node(0.25, 0.4501).certain
    assert node(0.0, 1.0, doubt=0.2).certain and not node(0.5, 0.5, doubt=0.201).certain
    assert node(None, 0.9).certain and node(0.1, None).certain
    assert node(0.5, 0.5).exact and not node(0.5, 0.6).exact
    wide = widened(node(0.4, 0.6), {"speedup": (0.1, 0.9)})
    assert (wide.low, wide.high, wide.doubt) == (0.1, 0.9, pytest.approx(0.2)) and wide.certain
    assert widened(node(0.4, 0.6), {"speedup": (0.5, 0.5)}).high == 0.6 and widened(node(None, 0.6), {"speedup": (0, 1)}).low is None


def test_ratio_is_null_where_any_array_has_no_denominator_and_broadcasts():
    import ibis

    assert ratio(np.array([1.0, 2.0]), 4).tolist() == [0.25, 0.5] and ratio(1, np.array([2.0, 4.0])).tolist() == [0.5, 0.25]
    assert np.isnan(ratio(np.array([1.0, 2.0]), 0)).all()
    table = ibis.memtable({"part": [1.0, 1.0], "whole": [4.0, 0.0]})
    assert ratio(table.part, table.whole).to_pyarrow().to_pylist() == [0.25, None]
    assert ratio(1, None) is None and ratio(0, 4) == 0


def test_cycles_are_those_of_several_sms_above_four_gigahertz():
    assert counted_units(np.array([4e9, 4.000001e9, np.nan]), 132).tolist() == [1.0, 132.0, 1.0]


@pytest.mark.parametrize("lacking", ["instructions", "cycles", "useful_time"])
def test_instructions_are_told_only_with_cycles_and_time(lacking):
    known = {"processes": 1, "elapsed": 10, "useful_time": 5, "offload_time": 0, "max_busy_time": 0, "instructions": 9, "cycles": 3}
    assert host_instructions(HostTotals(**known)).per_cycle == 3
    assert host_instructions(HostTotals(**known | {lacking: 0})) is None and host_instructions(None) is None


def test_a_gauge_that_is_stuck_at_zero_while_another_moves_is_as_if_it_were_not_exported():
    known = {"ofu": 0.27, "tensor": 0.3, "tensor_max": 0.4}
    sm, gr = {"sm": 0.6, "sm_max": 0.7}, {"gr": 0.72, "gr_max": 0.8}
    no_sm, no_gr = dict.fromkeys(sm), dict.fromkeys(gr)
    dead_sm, dead_gr = dict.fromkeys(sm, 0.0), dict.fromkeys(gr, 0.0)
    assert tree(**known, **sm, **dead_gr) == tree(**known, **sm, **no_gr) != tree(**known, **sm, **gr)
    assert tree(**known, **dead_sm, **gr) == tree(**known, **no_sm, **gr) != tree(**known, **sm, **gr)
    assert tree(**known, **dead_sm, **dead_gr) == tree(**known, **no_sm, **no_gr)
    # an engine at 1 is busy, and one at 0 idle where nothing else moves
    busy = tree(**known, **sm, gr=1.0, gr_max=1.0)
    assert busy.factor("activity") == 1 and busy.factor("sm_fill") == pytest.approx(0.6)
    idle = tree(ofu=0.0, tensor=0.0, tensor_max=0.0, **dead_sm, **dead_gr)
    assert [factor.name for factor in idle.factors] == ["load_balance", "activity", "sm_fill", "tensor_issue", "clock"]
    # SMs that work while the engine reads 0 prove it stuck, without tensor work too
    assert tree(ofu=0.0, tensor=0.0, tensor_max=0.0, **sm, **dead_gr).factor("activity") is None


def test_the_equation_of_a_metric_is_the_last_line_of_its_body():
    METRICS.load()
    assert METRICS["ullage"].equation == "1 - ofu" and METRICS["ullage"].parameters == ("ofu",)
    assert METRICS["mean_sm_clock"].equation == "ratio(sm_cycles, seconds * units)"
    assert METRICS["ullage"].summary == "How far a GPU falls short of full."


def test_gauges_stuck_at_zero_are_left_out_row_by_row():
    tensor, sm, gr = np.array([0.2, 0.0, 0.0, 0.2, np.nan]), np.array([0.0, 0.3, 0.0, 0.5, 0.4]), np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    sms, engine = credible(tensor, sm, gr)
    # tensor work proves both stuck; SM work proves the engine stuck, also where tensor activity is not known; at rest all are true
    assert [None if np.isnan(value) else value for value in sms] == [None, 0.3, 0.0, 0.5, 0.4]
    assert [None if np.isnan(value) else value for value in engine] == [None, None, 0.0, 1.0, None]


def test_a_tree_is_walked_parents_first_with_the_depth_of_each():
    tree = Node("a", "", 1, 1, 1, (Node("b", "", 1, 1, 1, (Node("c", "", 1, 1, 1),)), Node("d", "", 1, 1, 1)))
    assert [(depth, node.metric) for depth, node in tree.walk()] == [(0, "a"), (1, "b"), (2, "c"), (1, "d")]
    assert [leaf.metric for leaf in tree.leaves()] == ["c", "d"] and tree.find("c").metric == "c" and tree.find("x") is None


def test_the_losses_of_a_row_are_those_that_its_gauges_tell_apart_and_add_up():
    # of a job whose GPUs are compared by their engines: rows with all gauges, without SM activity, without the engine's, with neither
    nan = np.nan
    means = {"ofu": np.full(4, 0.1), "tensor": np.full(4, 0.2), "sm": np.array([0.4, nan, 0.4, nan]), "gr": np.array([0.5, 0.5, nan, nan])}
    most = {name: np.full(4, value) for name, value in (("gr", 0.8), ("sm", 0.6), ("tensor", 0.4))}
    found = step_losses(np.full(4, 100.0), means, most)
    told = [{name: round(float(lost[row]), 9) for name, lost in found.items() if not np.isnan(lost[row])} for row in range(4)]
    # even: 0.5 / 0.8; of the 62.5 that are left a fifth is lost to activity
    assert told[0] == {"load_balance": 37.5, "activity": 12.5, "sm_fill": 10, "tensor_issue": 20, "clock": 10}
    assert told[1] == {"load_balance": 37.5, "activity": 12.5, "sm_fill_x_tensor_issue": 30, "clock": 10}
    assert told[2] == {"load_balance_x_activity_x_sm_fill": 60, "tensor_issue": 20, "clock": 10}
    assert told[3] == {"load_balance_x_activity_x_sm_fill_x_tensor_issue": 80, "clock": 10}
    assert all(sum(row.values()) == pytest.approx(90) for row in told)


def test_the_losses_of_a_job_without_an_engines_gauge_are_told_by_what_its_gpus_are_compared_by():
    nan, hundred = np.nan, np.array([100.0])
    means = {"ofu": np.array([0.1]), "tensor": np.array([0.2]), "sm": np.array([0.4]), "gr": np.array([nan])}
    by_sm = step_losses(hundred, means, {"gr": np.array([nan]), "sm": np.array([0.8]), "tensor": np.array([0.4])})
    by_tensor = step_losses(
        hundred, means | {"sm": np.array([nan])}, {"gr": np.array([nan]), "sm": np.array([nan]), "tensor": np.array([0.4])}
    )
    told = [{name: round(float(lost[0]), 9) for name, lost in found.items() if not np.isnan(lost[0])} for found in (by_sm, by_tensor)]
    assert told[0] == {"load_balance": 50, "activity_x_sm_fill": 10, "tensor_issue": 20, "clock": 10}
    assert told[1] == {"load_balance": 50, "activity_x_sm_fill_x_tensor_issue": 30, "clock": 10}
    # nothing of no time, and no loss of balance where no GPU does anything
    assert all(
        np.isnan(lost[0])
        for lost in step_losses(np.array([0.0]), means, {"gr": np.array([0.8]), "sm": np.array([0.8]), "tensor": np.array([0.4])}).values()
    )
    still = {name: np.array([0.0]) for name in ("ofu", "tensor", "sm", "gr")}
    idle = step_losses(hundred, still, {name: np.array([0.0]) for name in ("gr", "sm", "tensor")})
    assert (idle["load_balance"][0], idle["activity"][0]) == (0, 100)


def test_a_chain_has_a_step_for_each_loss_in_the_order_of_the_tree():
    found = chain(100.0, 0.25, {"clock": 15.0, "activity": 40.0, "held_idle": 20.0})
    assert [(f.name, f.value) for f in found.factors] == [("held_idle", 0.8), ("activity", 0.5), ("clock", 0.625)]
    # a joined step stands before the one that begins with the same factor
    joined = chain(100.0, 0.5, {"activity": 20.0, "activity_x_sm_fill": 30.0})
    assert [f.name for f in joined.factors] == ["activity_x_sm_fill", "activity"]
    assert chain(0.0, 0.5, {"clock": 0.0}).ofu is None and chain(1.0, None, {"clock": 0.5}).factors == ()
