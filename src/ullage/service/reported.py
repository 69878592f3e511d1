"""What a job says of itself over HTTP: its MFU, its FLOP/s, or its tokens/s, kept as a job record beside the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.job_names import escaped_name
from ullage.metrics.mfu import flops_per_gpu
from ullage.store.store import Store
from ullage.tables import JOBS

WAIT_S = 5.0  # s that a report waits for another writer of the store
_Positive = Annotated[float, msgspec.Meta(gt=0, le=1e30)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class ReportedSpeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job says: `mfu`, `flops_per_gpu` (model FLOP/s), or `tokens_per_second` of the whole job with `flops_per_token` and `gpus`."""

    job: _Name
    mfu: Annotated[float, msgspec.Meta(gt=0, le=10)] | None = None
    flops_per_gpu: _Positive | None = None
    tokens_per_second: _Positive | None = None
    flops_per_token: _Positive | None = None
    gpus: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None

    def speed(self) -> float | None:
        """Return the model FLOP/s a GPU, None where only an MFU is said. Raises UllageError for words that don't go together."""
        tokens = (self.tokens_per_second, self.flops_per_token, self.gpus)
        if None not in tokens:
            if self.flops_per_gpu is not None:
                raise UllageError("flops_per_gpu and tokens_per_second say the same", "send one of them")
            return float(flops_per_gpu(self.tokens_per_second * self.flops_per_token, 1.0, self.gpus))  # type: ignore[operator]
        if any(value is not None for value in tokens):
            raise UllageError(
                "tokens per second are FLOP/s only with flops_per_token and gpus", "send all three: `ullage flops` knows the first"
            )
        if self.mfu is None and self.flops_per_gpu is None:
            raise UllageError("nothing is said of the job", "send mfu, flops_per_gpu, or tokens_per_second with flops_per_token and gpus")
        return self.flops_per_gpu


def read_reported_speed(body: bytes) -> ReportedSpeed:
    """Return what a job says. Raises UllageError for what says nothing."""
    try:
        return msgspec.json.decode(body, type=ReportedSpeed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UllageError(f"the report can't be read: {harmless(str(error), 300)}", 'send JSON: {"job": "4711", "mfu": 0.41}') from None


def keep_reported(place: Path, said: ReportedSpeed) -> int:
    """Keep what a job says in a store, in place of what it said before; returns how many job records there are now.

    Raises UllageError where nothing can be kept.
    """
    row = dict.fromkeys(JOBS.names) | {"job": escaped_name(said.job), "mfu": said.mfu, "flops_per_gpu": said.speed()}
    return Store.open(place, create=True, wait_s=WAIT_S).add_jobs(pa.Table.from_pylist([row], schema=JOBS))
