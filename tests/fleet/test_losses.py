"""The loss bill: shares of factors add up to everything that is lost, whatever the factors are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.metrics.host import HOST
from ullage.metrics.losses import Bill, bill
from ullage.metrics.tree import DEVICE_AI, Node, evaluate
from ullage.totals import DeviceTotals, HostTotals

SECOND = 10**9


def tree(*factors: float | None, value: float | None = None) -> Node:
    """A tree of leaves a, b, c … under their product (or a stated value)."""
    leaves = tuple(Node(name, name.upper(), f, f, f) for name, f in zip("abcdefgh", factors, strict=False))
    whole = math.prod(f for f in factors if f is not None) if value is None else value
    return Node("whole", "Whole", whole, whole, whole, leaves)


def shares(found: Bill) -> dict[str, float | None]:
    return {loss.metric: loss.share for loss in found.losses}


def test_a_device_tree_as_gpu_seconds_and_money():
    # two GPUs for 100 s: 200 GPU-seconds, kernels for 50 in all, the longer 30; 40 with copies; so 0.25 = 5/6 x 3/4 x 2/5
    totals = DeviceTotals(2, 100 * SECOND, 50 * SECOND, 0, 15 * SECOND, 30 * SECOND, 30 * SECOND, 40 * SECOND)
    found = bill(evaluate(DEVICE_AI, totals.sums()), 200 * SECOND, price=3.6)
    # lost are 150 of them; at 3.60 an hour a second is 0.001
    assert (found.seconds, found.money) == (150.0, 0.15)
    # ln 4 = 1.3863 is ln 6/5 = 0.1823, no collectives, ln 4/3 = 0.2877 of copies, ln 5/2 = 0.9163
    assert {name: round(share, 4) for name, share in shares(found).items()} == {
        "device_load_balance": 0.1315,
        "collective_efficiency": 0.0,
        "copy_efficiency": 0.2075,
        "orchestration_efficiency": 0.6610,
    }
    assert sum(loss.seconds for loss in found.losses) == pytest.approx(150)
    assert sum(loss.money for loss in found.losses) == pytest.approx(0.15)


def test_a_host_tree_as_cpu_seconds_without_a_price():
    # two processes over 10 s: useful 4, in the GPU's interface 12, the busier is so for 8 s: 0.2 = 0.8 x 1 x 0.25
    found = bill(evaluate(HOST, HostTotals(2, 10 * SECOND, 4 * SECOND, 12 * SECOND, 8 * SECOND).sums()), 20 * SECOND)
    assert (found.seconds, found.money) == (16.0, None)
    assert shares(found)["host_load_balance"] == 0
    assert shares(found)["device_offload_efficiency"] == pytest.approx(math.log(4) / math.log(5))


def test_a_factor_of_zero_takes_everything_and_several_share_it():
    assert shares(bill(tree(0.5, 0.0, 1.0), SECOND)) == {"a": 0.0, "b": 1.0, "c": 0.0}
    assert shares(bill(tree(0.0, 0.0, 0.5), SECOND)) == {"a": 0.5, "b": 0.5, "c": 0.0}
    assert bill(tree(0.5, 0.0), 8 * SECOND).losses[1].seconds == 8


def test_nothing_lost_is_no_shares():
    found = bill(tree(1.0, 1.0), SECOND)
    assert (found.seconds, shares(found)) == (0.0, {"a": 0.0, "b": 0.0})


def test_what_is_not_known_alone_is_one_part_of_what_the_others_leave():
    # 0.25 = 0.5 x b x c: b and c together are another half, wherever it is lost
    found = bill(tree(0.5, None, None, value=0.25), 4 * SECOND)
    assert shares(found) == {"a": 0.5, "b_x_c": 0.5}
    assert (found.losses[1].label, found.unsplit) == ("B × C", ("b", "c"))


def test_a_device_that_never_runs_a_kernel_is_lost_to_orchestration():
    # load balance and communication are 0 / 0; nothing ran, and that is the host's
    found = bill(evaluate(DEVICE_AI, DeviceTotals(1, SECOND, 0, 0, 0, 0, 0, 0).sums()), SECOND)
    assert found.seconds == 1
    assert [loss.share for loss in found.losses if loss.metric == "orchestration_efficiency"] == [1.0]
    assert "device_load_balance" in found.unsplit


def test_a_factor_in_wide_bounds_is_not_split_and_a_whole_in_wide_bounds_is_not_billed():
    loose = Node("b", "B", 0.7, 0.3, 0.9)  # 0.25 = 0.5 x what is left, whatever this says
    assert shares(bill(Node("w", "W", 0.25, 0.25, 0.25, (Node("a", "A", 0.5, 0.5, 0.5), loose)), SECOND)) == {"a": 0.5, "b": 0.5}
    assert bill(Node("w", "W", 0.25, 0.1, 0.9, (loose,)), SECOND) == Bill("w", None, None, (), ("b",))


def test_a_tree_without_children_is_its_own_loss():
    assert shares(bill(Node("w", "W", 0.25, 0.25, 0.25), SECOND)) == {"w": 1.0}


def test_a_gain_gives_back_and_a_loss_may_then_be_more_than_everything():
    # 0.5 = 0.25 x 2: the first loses twice what is lost, the second gives half of it back
    found = bill(tree(0.25, 2.0), 2 * SECOND)
    assert shares(found) == {"a": 2.0, "b": -1.0}
    assert [loss.seconds for loss in found.losses] == [2.0, -1.0]


def test_where_gains_make_up_for_losses_there_are_seconds_and_no_shares():
    # 1 = 0.5 x 2: in the limit a unit of -ln costs the whole capacity, so ln 2 of it
    found = bill(tree(0.5, 2.0), SECOND)
    assert (found.seconds, shares(found)) == (0.0, {"a": None, "b": None})
    assert [loss.seconds for loss in found.losses] == pytest.approx([math.log(2), -math.log(2)])


factor = st.floats(1e-6, 1, exclude_max=False)


@given(st.lists(factor, min_size=1, max_size=8))
def test_shares_add_up_to_everything_and_none_is_negative(factors):
    found = bill(tree(*factors), 1000 * SECOND, price=2.0)
    costs = [loss.share for loss in found.losses]
    assert all(share >= 0 for share in costs)
    if math.prod(factors) < 1:
        assert sum(costs) == pytest.approx(1, abs=1e-12)
    assert sum(loss.seconds for loss in found.losses) == pytest.approx(found.seconds)


@given(st.lists(factor, min_size=2, max_size=8), st.randoms())
def test_a_share_does_not_depend_on_the_order_of_the_factors(factors, random):
    leaves = list(tree(*factors).children)
    whole = math.prod(factors)
    before = shares(bill(Node("w", "W", whole, whole, whole, tuple(leaves)), SECOND))
    random.shuffle(leaves)
    after = shares(bill(Node("w", "W", whole, whole, whole, tuple(leaves)), SECOND))
    assert after == pytest.approx(before)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_seconds_add_up_with_gains_too(factors):
    found = bill(tree(*factors), SECOND)
    assert sum(loss.seconds for loss in found.losses) == pytest.approx(found.seconds, rel=1e-6, abs=1e-6)
