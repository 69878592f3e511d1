"""What bounds the generation of text: each step reads all weights and all cached keys and values once."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="1/s", source="Ullage: a step reads its weights once for the whole batch, and every sequence's cache")
def generation_bound(batch: Value, bandwidth: Value, weight_bytes: Value, cache_bytes: Value) -> Value:
    """The most tokens a second that memory allows a generating model: a step makes `batch` tokens and reads weights and cache once.

    `cache_bytes` are the keys and values of the whole batch. What is measured lies below it by launches, attention, and all
    that is not memory; above it only where the weights fit into a cache. Large batches are bound by arithmetic instead: see `mfu`.

    8 sequences, 14 GB of weights and 2 GB of cache at 3.2 TB/s: a step takes 5 ms.

    >>> generation_bound(batch=8, bandwidth=3.2e12, weight_bytes=14e9, cache_bytes=2e9)
    1600.0
    """
    return ratio(batch * bandwidth, weight_bytes + cache_bytes)
