"""Ranks whose steps are fed unequally: what of their imbalance is longer sequences, and what a slow rank."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="s", source="Ullage: kernel time over tokens")
def time_per_token(kernel_time: Value, tokens: Value) -> Value:
    """How long a rank's kernels take for each token that it is fed, collectives left out.

    Ranks of one stage can be compared by it although their sequences differ. Attention grows with the square of a sequence's length, so
    long sequences cost somewhat more per token.

    8,192 tokens in 0.4096 s: 50 microseconds each.

    >>> time_per_token(kernel_time=0.4096, tokens=8192)
    5e-05
    """
    return ratio(kernel_time, tokens)


@metric(unit="1", source="TALP paper, eq. 9, its inverse, step by step")
def rank_imbalance(slowest_time: Value, mean_time: Value) -> Value:
    """How many times as long the rank that computes longest does so as the mean rank, step by step: 1 where all are alike.

    The sums over steps of the longest rank's time and of the mean over ranks. Everyone waits for the longest.

    >>> rank_imbalance(slowest_time=1.5, mean_time=1.2)
    1.25
    """
    return ratio(slowest_time, mean_time)
