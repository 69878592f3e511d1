"""Sums over settled samples by job and by time: what the courses of jobs are made from."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ullage.sums.devices import KIND, chosen_sums, milliseconds_of, with_states

# a row is the time of a job in a bucket, in which its devices were (not) idle, on one kind of GPU
KEYS = ("bucket", "cluster", "job", "user", "namespace", *KIND, "_quiet")
SUMS = (
    "span_ms", "ofu_ms", "ofu_sum", "cycles_ms", "tensor_cycles", "sm_cycles", "ofu_tensor_sum", "cycles_tensor_sum",
    *(f"{name}_{what}" for name in ("sm_active", "gr_active", "memory", "energy", "sampled") for what in ("ms", "sum")),
)  # fmt: skip


def job_course_sums(samples: Any, *, bucket_ms: int) -> pa.Table:
    """Return sums of `sums.devices` by job, bucket of time and kind of GPU, apart for the time in which the devices were idle (`_quiet`).

    A device that several jobs hold tells of none of them and is left out.
    """
    states, _ = with_states(samples, bucket_ms)
    held = states.filter(states.job.notnull() & (states.sharers <= 1))
    return chosen_sums(held, KEYS, SUMS).to_pyarrow()


DEVICE_KEYS = ("bucket", "cluster", "job", "user", "namespace", "host", "gpu", *KIND, "_quiet")


def device_scrape_sums(samples: Any, *, interval_ms: int) -> pa.Table:
    """Return what `job_course_sums` does for each device of a job by itself, a `bucket` being the samples of one scrape's time.

    A sample counts whole in the bucket in which it ends: what devices read at nearly one time stands beside each other. `last_ms` is the
    time of the last one.
    """
    states, _ = with_states(samples)
    at = milliseconds_of(states.time) - 1
    held = states.mutate(bucket=at // interval_ms * interval_ms).filter(states.job.notnull() & (states.sharers <= 1))
    return chosen_sums(held, DEVICE_KEYS, SUMS, last_ms=milliseconds_of(held.time.max())).to_pyarrow()
