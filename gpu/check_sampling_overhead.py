"""Does reading GPM slow the work that it watches?"""

from __future__ import annotations

from statistics import median
from typing import Any

from gpu.check import Findings, check
from gpu.machine import Machine
from gpu.telemetry import watched

SIZE = 8192
ROUNDS, SECONDS = 3, 3.0
MODES: dict[str, float | None] = {"none": None, "1 s": 1.0, "0.1 s": 0.1}


@check(
    headline="sampling costs {loss_1_s:.2%} every second, {loss_0_1_s:.2%} every 0.1 s; rounds differ by {spread:.2%}",
    loaded=True,
    answers={
        "flops": "rate of the products without sampling, FLOP/s",
        "loss_1_s": "share lost to sampling every second (negative: faster)",
        "loss_0_1_s": "share lost to sampling every 0.1 s",
        "spread": "(highest - lowest) / median of the rounds without sampling: a smaller loss is noise",
    },
    columns={"round": "from 1", "sampling": "none, or the interval", "flops": "rate over 3 s, FLOP/s"},
)
def sampling_overhead(machine: Machine) -> Findings:
    """Does reading GPM slow the work that it watches?

    One BF16 GEMM runs throughout; windows of 3 s without sampling, with a reading every second and with one every 0.1 s
    take turns, three times. The reader runs in the same process, while the products are queued ahead on the GPU.
    """
    assert machine.load is not None, "the runner asks for a load"
    windows: list[tuple[int, str, float, float]] = []
    with machine.load(SIZE) as work:
        machine.sleep(SECONDS)  # the clock settles
        for turn in range(1, ROUNDS + 1):
            for mode, interval in MODES.items():
                begin = machine.clock() / 1000
                _wait(machine, interval)
                windows.append((turn, mode, begin, machine.clock() / 1000))
    rows: list[dict[str, Any]] = [
        {"round": r, "sampling": m, "flops": work.flops_between(begin, end) / (end - begin)} for r, m, begin, end in windows
    ]
    rates = {mode: [row["flops"] for row in rows if row["sampling"] == mode] for mode in MODES}
    return Findings(
        settings={"gemm": SIZE, "dtype": "bfloat16", "load": machine.load_name, "rounds": ROUNDS, "seconds": SECONDS},
        answers=_answers(rates),
        rows=rows,
        wrong=[] if min(rates["none"]) > 0 else ["the load did no work"],
    )


def _wait(machine: Machine, interval: float | None) -> None:
    if interval is None:
        machine.sleep(SECONDS)
    else:
        watched(machine, SECONDS, interval)


def _answers(rates: dict[str, list[float]]) -> dict[str, Any]:
    bare = median(rates["none"])
    if not bare:
        return {"flops": 0.0, "loss_1_s": None, "loss_0_1_s": None, "spread": None}
    return {
        "flops": bare,
        "loss_1_s": 1 - median(rates["1 s"]) / bare,
        "loss_0_1_s": 1 - median(rates["0.1 s"]) / bare,
        "spread": (max(rates["none"]) - min(rates["none"])) / bare,
    }
