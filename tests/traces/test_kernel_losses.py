"""What a kernel loses, step by step, beside a reference in fractions that is written from the definitions alone."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from ullage.metrics.kernel_losses import STEPS, KernelCeilings, KernelLoss, KernelWork, kernel_loss

DRAWN = 50  # kernels of a seed


def drawn(rng: random.Random) -> tuple[KernelWork, KernelCeilings]:
    """A kernel whose condition is each sometimes not known, of no effect, or stronger than its time allows."""
    peak, bandwidth = rng.choice([1e14, 9.894e14, 2e15]), rng.choice([1e12, 3.35e12])
    time = 10 ** rng.uniform(-6, 0)
    flops = rng.choice([0, rng.uniform(0.01, 1.1) * time * peak, time * peak])
    maybe = lambda value: rng.choice([None, value, value])  # noqa: E731
    return (
        KernelWork(
            time,
            flops,
            maybe(flops * rng.choice([1.0, rng.uniform(1, 1.6)])) if flops else None,
            maybe(rng.choice([1.0, rng.uniform(0.05, 1)])) if flops else None,
            maybe(rng.choice([0.0, rng.uniform(0.001, 1.5)]) * time * bandwidth),
        ),
        KernelCeilings(peak if flops else None, bandwidth, maybe(rng.choice([1.0, rng.uniform(0.5, 1.1)]))),
    )


def reference(work: KernelWork, roofs: KernelCeilings) -> dict[str, Fraction | None]:
    """Each step by itself, in fractions: the time under all conditions up to it less the time under those before."""
    exact = {name: None if value is None else Fraction(value) for name, value in {**vars(work), **vars(roofs)}.items()}
    multiplies = work.flops > 0
    ideal = exact["flops"] / exact["peak"] if multiplies else Fraction(0)
    limit = max(exact["time"], ideal)

    def time_under(conditions: tuple[str, ...]) -> Fraction:
        work_done = exact["executed"] if "tile" in conditions and exact["executed"] is not None else exact["flops"]
        seconds = work_done / exact["peak"] if multiplies else Fraction(0)
        if multiplies and "clock" in conditions and exact["clock"] is not None:
            seconds /= exact["clock"]
        if "wave" in conditions and exact["waves"] is not None:
            seconds /= exact["waves"]
        if "memory" in conditions and exact["bytes"] is not None:
            seconds = max(seconds, exact["bytes"] / exact["bandwidth"])
        return min(seconds, limit)

    known = {
        "tile": multiplies and exact["executed"] is not None,
        "clock": multiplies and exact["clock"] is not None,
        "wave": multiplies and exact["waves"] is not None,
        "memory": exact["bytes"] is not None,
    }
    steps: dict[str, Fraction | None] = {}
    for place, name in enumerate(STEPS[:-1]):
        steps[name] = time_under(STEPS[: place + 1]) - time_under(STEPS[:place]) if known[name] else None
    steps["itself"] = exact["time"] - time_under(STEPS[:-1]) if any(known.values()) else None
    steps["loss"] = exact["time"] - ideal
    return steps


def agree(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(DRAWN):
        work, roofs = drawn(rng)
        found, expected = kernel_loss(work, roofs), reference(work, roofs)
        slack = 1e-12 * max(work.time, work.flops / (roofs.peak or 1))
        for name, value in expected.items():
            own = getattr(found, name)
            assert (own is None) == (value is None), (name, work, roofs)
            assert value is None or abs(own - value) <= slack, (name, work, roofs)
        if found.itself is not None:
            assert abs(sum(found.steps.values()) - found.loss) <= slack
        largest = max((value for name, value in expected.items() if name in STEPS and value is not None), default=0)
        if largest > 2 * slack:
            assert found.bound_by is not None and expected[found.bound_by] >= largest - 2 * slack


@pytest.mark.parametrize("seed", range(20))
def test_every_step_is_the_reference(seed):
    agree(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20, 420))
def test_every_step_is_the_reference_over_many_seeds(seed):
    agree(seed)


def loss(time: float, flops: float, **known) -> KernelLoss:
    roofs = KernelCeilings(100.0 if flops else None, 10.0, known.pop("clock", None))
    return kernel_loss(KernelWork(time, flops, **known), roofs)


def test_memory_takes_a_step_only_where_bytes_need_longer_than_computing():
    # 200 FLOPs at 100 a second: 2 s; 20 bytes at 10 a second: 2 s
    assert loss(4, 200, bytes=20).memory == 0
    assert loss(4, 200, bytes=19.9).memory == 0
    assert loss(4, 200, bytes=20.5).memory == pytest.approx(0.05)


def test_a_level_at_the_measured_time_is_no_cut_and_one_above_it_is():
    assert loss(4, 200, executed=400).cut == () and loss(4, 200, executed=400).itself == 0
    cut = loss(4, 200, executed=401)
    assert cut.cut == ("tile",) and cut.tile == 2 and cut.itself == 0


def test_a_kernel_at_its_peak_is_bound_by_nothing_and_one_just_below_by_itself():
    assert loss(2, 200, executed=200).bound_by is None
    assert loss(2.001, 200, executed=200).bound_by == "itself"


def test_a_clock_above_that_of_the_peak_gives_time_back():
    # 2 s at the peak's clock, 1.6 s at 5/4 of it
    found = loss(2, 200, clock=1.25)
    assert found.clock == pytest.approx(-0.4) and found.itself == pytest.approx(0.4) and found.loss == 0


def test_a_kernel_faster_than_its_peak_loses_less_than_nothing_by_itself():
    found = loss(1.9, 200, executed=250, waves=0.5)
    assert found.tile == 0 and found.wave == 0 and found.itself == pytest.approx(-0.1) and found.bound_by is None
    assert found.cut == ("tile", "wave")


def test_of_equal_steps_the_earlier_one_binds():
    assert loss(4, 200, executed=300).bound_by == "tile"


def test_what_is_not_known_is_no_step():
    assert loss(4, 0).steps == {} and loss(4, 0).loss == 4 and loss(4, 0).bound_by is None
    assert loss(4, 200).steps == {} and loss(4, 200).loss == 2
    assert loss(4, 0, bytes=0).steps == {"memory": 0, "itself": 4}
