"""What stragglers cost a training job: the step's time beside what it would be if some operations took as long as their peers' do."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio

_PAPER = 'Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025)'


@metric(unit="1", source=f"{_PAPER}, eq. 1 and 2")
def straggler_slowdown(step_time: Value, ideal_step_time: Value) -> Value:
    """How many times as long a step takes as it would if every operation took as long as its peers' do on average.

    1 where nobody is slow. With the step time in which only one rank (one stage, one kind of operation) keeps its own durations, it is what
    that one alone costs; it may be below 1 then, for a rank that is faster than the average. Gaps that no dependency explains are left out.

    >>> straggler_slowdown(step_time=46.0, ideal_step_time=23.0)
    2.0
    """
    return ratio(step_time, ideal_step_time)


@metric(unit="1", source=f"{_PAPER}, eq. 5")
def straggler_share(step_time: Value, step_time_without: Value, ideal_step_time: Value) -> Value:
    """How much of what stragglers cost is gone once some operations take as long as their peers' do.

    1 where those operations are all of it. Shares of different operations need not add up to 1: it may be above 1, where the others are
    faster than the average, and below 0, where the operations themselves are.

    >>> straggler_share(step_time=46.0, step_time_without=24.0, ideal_step_time=24.0)
    1.0
    """
    return ratio(step_time - step_time_without, step_time - ideal_step_time)
