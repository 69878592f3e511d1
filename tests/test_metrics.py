"""Equations: each has a worked example, parents are products, and the papers' own numbers come out."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage.metrics
from ullage.metrics.agreement import pearson, relative_error
from ullage.metrics.clocks import sampling_noise
from ullage.metrics.metric import METRICS, ratio
from ullage.metrics.ofu import sampled_ofu
from ullage.metrics.telemetry import tree


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_has_a_unit_a_source_a_page_and_an_example(name):
    metric = METRICS[name]
    assert metric.unit
    assert metric.source
    assert metric.summary.endswith(".") or metric.summary.endswith(":")
    assert doctest.DocTestFinder().find(metric.function)[0].examples
    assert metric.equation


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
