"""One question about a fleet day, asked one way, in this process: `python benchmarks/asked.py QUESTION-WAY STORE`.

The ways: Ullage, and what a user would write instead in pandas, in Polars, or in SQL for DuckDB, over the same Parquet
files and of the same columns. Prints a line of JSON: the answer, the seconds it took once the libraries were loaded, and the
CPU seconds of the whole process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

CLOCKS = {"NVIDIA H100 80GB HBM3": 1830e6, "NVIDIA A100-SXM4-80GB": 1410e6}  # tensor clocks, Hz
FACTORS = ("load_balance", "activity", "sm_fill", "tensor_issue", "clock")
NEEDED = ["gpu", "job", "model", "span_ms", "tensor_active", "sm_active", "gr_active", "sm_clock"]
Answer = Callable[[], Any]


def files(store: Path) -> list[str]:
    return sorted(str(path) for path in store.glob("samples/*/*.parquet"))


# --- Ullage ---


def load_ibis() -> None:
    """Load what Ibis loads when it is first asked: its backend for DuckDB, and pandas, on which it depends."""
    import ibis
    import ibis.backends.duckdb.converter

    _ = ibis.duckdb


def ullage_ofu(store: Path) -> Answer:
    from ullage.reports.fleet.ofu import fleet_ofu
    from ullage.store.store import Store

    load_ibis()
    return lambda: fleet_ofu(Store.open(store).samples())


def ullage_tree(store: Path) -> Answer:
    from ullage.reports.fleet.ofu import job_trees
    from ullage.store.store import Store

    load_ibis()
    return lambda: {
        group.key: [group.ofu, *(group.tree.factor(name) for name in FACTORS)] for group in job_trees(Store.open(store).samples())
    }


def ullage_report(store: Path, *, rolled: bool = False) -> Answer:
    from ullage.render.fleet import view
    from ullage.reports.fleet.fleet import fleet
    from ullage.reports.fleet.request import FleetRequest
    from ullage.store.store import Store
    from ullage.views.text import text

    load_ibis()

    def answer() -> float | None:
        resting = Store.open(store)
        report = fleet(resting.samples(), resting.jobs(), FleetRequest(), rolled=resting.rolled() if rolled else None)
        text(view(report))
        return report.ofu_all

    return answer


# --- pandas ---


def pandas_ofu(store: Path) -> Answer:
    import pandas as pd

    def answer() -> float:
        day = pd.read_parquet(files(store), columns=["model", "span_ms", "tensor_active", "sm_clock"])
        span = day["span_ms"].astype("float64")
        done = (span * day["tensor_active"] * day["sm_clock"]).groupby(day["model"], observed=True).sum()
        return float(sum(done[model] / clock for model, clock in CLOCKS.items() if model in done) / span.sum())

    return answer


def pandas_tree(store: Path) -> Answer:
    import pandas as pd

    def answer() -> dict[str, list[float]]:
        day = pd.read_parquet(files(store), columns=NEEDED)
        span = day["span_ms"].astype("float64")
        clock = day["model"].map(CLOCKS).astype("float64")
        parts = {"span": span, "ofu": span * day["tensor_active"] * day["sm_clock"] / clock}
        parts |= {name: span * day[f"{name}_active"] for name in ("tensor", "sm", "gr")}
        devices = pd.DataFrame({"job": day["job"], "gpu": day["gpu"], **parts}).groupby(["job", "gpu"], observed=True).sum()
        jobs = devices.groupby("job", observed=True).sum()
        most = (devices["gr"] / devices["span"]).groupby("job", observed=True).max()
        return chains({name: jobs[name].to_numpy() for name in parts}, most.to_numpy(), jobs.index.tolist())

    return answer


# --- Polars ---


def polars_ofu(store: Path) -> Answer:
    import polars as pl

    def answer() -> float:
        span = pl.col("span_ms").cast(pl.Float64)
        done = (
            pl.scan_parquet(files(store))
            .group_by("model")
            .agg(span.sum().alias("span"), (span * pl.col("tensor_active") * pl.col("sm_clock")).sum().alias("ofu"))
        )
        rows = done.collect().to_dicts()
        return float(sum(row["ofu"] / CLOCKS[row["model"]] for row in rows) / sum(row["span"] for row in rows))

    return answer


def polars_tree(store: Path) -> Answer:
    import polars as pl

    def answer() -> dict[str, list[float]]:
        span = pl.col("span_ms").cast(pl.Float64)
        devices = (
            pl.scan_parquet(files(store))
            .filter(pl.col("job").is_not_null())
            .group_by("job", "gpu", "model")
            .agg(
                span.sum().alias("span"),
                (span * pl.col("tensor_active") * pl.col("sm_clock")).sum().alias("ofu"),
                *((span * pl.col(f"{name}_active")).sum().alias(name) for name in ("tensor", "sm", "gr")),
            )
            .with_columns(pl.col("ofu") / pl.col("model").cast(pl.String).replace_strict(CLOCKS, return_dtype=pl.Float64))
        )
        jobs = devices.group_by("job").agg(
            *(pl.col(name).sum() for name in ("span", "ofu", "tensor", "sm", "gr")), (pl.col("gr") / pl.col("span")).max().alias("most")
        )
        found = jobs.collect()
        return chains(
            {name: found[name].to_numpy() for name in ("span", "ofu", "tensor", "sm", "gr")},
            found["most"].to_numpy(),
            found["job"].to_list(),
        )

    return answer


# --- SQL by hand ---


def sql_ofu(store: Path) -> Answer:
    import duckdb

    def answer() -> float:
        found = duckdb.sql(
            f"select model, sum(span_ms), sum(span_ms::double * tensor_active * sm_clock) from read_parquet({files(store)}) group by model"
        ).fetchall()
        return float(sum(done / CLOCKS[model] for model, _, done in found) / sum(span for _, span, _ in found))

    return answer


def sql_tree(store: Path) -> Answer:
    import duckdb

    clock = "case model " + " ".join(f"when '{model}' then {value}" for model, value in CLOCKS.items()) + " end"
    parts = ", ".join(f"sum(span_ms::double * {name}_active) as {name}" for name in ("tensor", "sm", "gr"))

    def answer() -> dict[str, list[float]]:
        found = duckdb.sql(
            f"""
            with devices as (
                select job, gpu, model, sum(span_ms) as span, sum(span_ms::double * tensor_active * sm_clock) / {clock} as ofu, {parts}
                from read_parquet({files(store)}) where job is not null group by job, gpu, model
            )
            select job, sum(span)::double as span, sum(ofu) as ofu, sum(tensor) as tensor, sum(sm) as sm, sum(gr) as gr,
                max(gr / span) as most
            from devices group by job
            """
        ).fetchnumpy()
        return chains({name: found[name] for name in ("span", "ofu", "tensor", "sm", "gr")}, found["most"], list(found["job"]))

    return answer


def chains(sums: dict[str, Any], most: Any, jobs: list[str]) -> dict[str, list[float]]:
    """Return OFU and the five factors of each job, from its sums and its busiest device's own activity."""
    with np.errstate(invalid="ignore"):  # a job that never ran has no factors
        mean = {name: sums[name] / sums["span"] for name in ("ofu", "tensor", "sm", "gr")}
        steps = (mean["gr"] / most, most, mean["sm"] / mean["gr"], mean["tensor"] / mean["sm"], mean["ofu"] / mean["tensor"])
    return {str(job): [float(column[at]) for column in (mean["ofu"], *steps)] for at, job in enumerate(jobs)}


WAYS: dict[str, Callable[[Path], Answer]] = {
    "ofu-ullage": ullage_ofu,
    "ofu-pandas": pandas_ofu,
    "ofu-polars": polars_ofu,
    "ofu-sql": sql_ofu,
    "tree-ullage": ullage_tree,
    "tree-pandas": pandas_tree,
    "tree-polars": polars_tree,
    "tree-sql": sql_tree,
    "report-ullage": ullage_report,
    "report-rolled": partial(ullage_report, rolled=True),
}

if __name__ == "__main__":
    ask = WAYS[sys.argv[1]](Path(sys.argv[2]))
    begin = time.perf_counter()
    told = ask()
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "cpu": time.process_time(), "answer": told}))
