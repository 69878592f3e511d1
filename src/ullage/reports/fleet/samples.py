"""OFU of every single sample: the settled samples with an `ofu` column, for whoever wants to go on from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.metrics.ofu import sampled_ofu


def with_ofu(samples: Any, model: str | None = None) -> Any:
    """Return an Ibis table of settled samples with `ofu` (sampled, eq. 1) and the `tensor_clock` in Hz that it was divided by.

    Both are null where the GPU is not known; `model` names it where the samples don't.
    """
    import ibis

    clocks: list[tuple[Any, Any]] = []
    for name in samples.select("model").distinct().to_pyarrow()["model"].to_pylist():
        clock = _tensor_clock(name or model)
        if clock is not None:
            clocks.append((samples.model.isnull() if name is None else samples.model == name, ibis.literal(clock, "float64")))
    if not clocks:
        raise UllageError("no GPU of these samples is known", "name it with --gpu; `ullage gpus` lists all")
    table = samples.mutate(tensor_clock=ibis.cases(*clocks, else_=ibis.null("float64")))
    return table.mutate(ofu=sampled_ofu(table.tensor_active.cast("float64"), table.sm_clock.cast("float64"), table.tensor_clock))


def _tensor_clock(name: str | None) -> float | None:
    try:
        return find(name).tensor_clock if name else None
    except UllageError:
        return None


def write_with_ofu(samples: Any, out: Path, *, since: int | None, until: int | None, model: str | None) -> None:
    """Write the samples of a window with their OFU as Parquet, whole or not at all. Raises UllageError for what can't be written."""
    from ullage.checked_parquet import writer
    from ullage.store.reading import batches_of
    from ullage.sums.devices import within

    part = out.with_name(f".{out.name}.part")
    try:
        rows = batches_of(with_ofu(within(samples, since, until), model))
        with writer(part, rows.schema, compression="zstd") as file:
            for batch in rows:
                file.write_batch(batch)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UllageError(f"{out} can't be written: {error.strerror or error}") from error
