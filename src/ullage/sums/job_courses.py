"""Sums over settled samples by job and by time: what the courses of jobs are made from."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ullage.sums.devices import KIND, chosen_sums, with_states

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
