"""The program that trains in turns with and without the recorder, and tells how long its steps took."""

from __future__ import annotations

import importlib
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gpu.apart import tell
from gpu.cupti_training_program import Step, stepper
from ullage.cupti.kinds import DEFAULT, Kind
from ullage.cupti.layouts import layouts
from ullage.cupti.library import find
from ullage.cupti.recorder import Recorder, recorder

PAIRS, WINDOW = 12, 0.35  # turns with and without, and how long each is, s
ALONE = 5  # windows before the recorder comes, and after it went
LAUNCHES = 200  # of a step, more or less: it decides how long a step must be
RATE = 15_000  # launches a second that the steady step is to have
WIDTH, TINY = 1024, (16, 128)  # of the network whose steps keep the GPU busy; rows and width of the one that doesn't
MOST_ROWS = 1 << 16


def main(regime: str, mode: str, folder: str) -> None:
    """Measure. `regime`: "steady" (the GPU is busy, some 10,000 launches a second) or "bound" (as many launches as the host can make);
    `mode`: "activity" or "callbacks"."""
    torch: Any = importlib.import_module("torch")
    step = steady(torch) if regime == "steady" else stepper(torch, nullcontext, *TINY)
    before = [window(torch, step)[1] for _ in range(ALONE)]
    made = attached(mode, folder)
    count, each = window(torch, step)
    with_, without, steps, seconds = pairs(torch, step, made)
    steps, seconds = steps + count, seconds + count * each
    path = made.path()
    made.detach()
    after = [window(torch, step)[1] for _ in range(ALONE)]
    tell(before=before, after=after, on=with_, off=without, steps=steps, seconds=seconds, path=str(path))


def steady(torch: Any) -> Step:
    """Return a step that takes as long as its launches should: rows are doubled until it does."""
    rows = 256
    while True:
        step = stepper(torch, nullcontext, rows, WIDTH)
        window(torch, step)
        if window(torch, step)[1] >= LAUNCHES / RATE or rows >= MOST_ROWS:
            return step
        rows *= 2


def window(torch: Any, step: Step, seconds: float = WINDOW) -> tuple[int, float]:
    """Return how many steps were done in so many seconds, and how long one took."""
    torch.cuda.synchronize()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        step()
        count += 1
    torch.cuda.synchronize()
    return count, (time.perf_counter() - begin) / count


def pairs(torch: Any, step: Step, made: Recorder) -> tuple[list[float], list[float], int, float]:
    """Return the times of a step with and without, how many steps were recorded in all, and the seconds that they took."""
    times: dict[bool, list[float]] = {True: [], False: []}
    steps, seconds, running = 0, 0.0, True
    for turn in range(PAIRS):
        for on in (True, False) if turn % 2 else (False, True):
            if on != running:
                (made.start if on else made.stop)()
                running = on
            count, each = window(torch, step)
            times[on].append(each)
            steps, seconds = steps + on * count, seconds + on * count * each
    return times[True], times[False], steps, seconds


def attached(mode: str, folder: str) -> Recorder:
    """Attach the recorder in C. Raises UllageError where it can't be built."""
    library = find()
    kinds = sorted(int(kind) for kind in DEFAULT - ({Kind.RUNTIME, Kind.DRIVER} if mode == "callbacks" else set()))
    os.environ |= {
        "ULLAGE_CUPTI": str(library.path),
        "ULLAGE_KINDS": ",".join(map(str, kinds)),
        "ULLAGE_NAMES": layouts(library.release).name_offsets(kinds),
        "ULLAGE_CALLBACKS": "runtime,driver" if mode == "callbacks" else "",
    }
    made = recorder()
    made.attach(Path(folder))
    return made
