"""The program that trains in turns with and without the recorder, and tells how long its steps took.

Without PyTorch a step is as many launches of kernels of ours: it needs nothing but the driver then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, cast

from gpu.apart import tell
from gpu.cupti_device import Device
from gpu.cupti_tools import refusal
from gpu.cupti_training_program import WIDTH as TRAINED_WIDTH
from gpu.cupti_training_program import Step, network, stepper
from gpu.machine import torch_or_none
from gpu.tensor_kernels import tensor_kernels, trips_lasting
from ullage.cupti.kinds import DEFAULT, ActivityKind
from ullage.cupti.library import find
from ullage.cupti.recorder import Recorder, this_recorder, tracing
from ullage.errors import UllageError

PAIRS, WINDOW = 12, 0.35  # turns with and without, and how long each is, s
ALONE = 5  # windows before the recorder comes, and after it went
LAUNCHES = 200  # of a step (of training: more or less): it decides how long a step must be
RATE = 15_000  # launches a second that the steady step is to have
WIDTH, TINY = 1024, (16, 128)  # of the network whose steps keep the GPU busy; rows and width of the one that doesn't
MOST_ROWS = 1 << 16
SERVED_ROWS = 32  # of the pass that is replayed


@dataclass(frozen=True)
class SteppedLoad:
    """What is timed: `step` does one step, `wait` waits for the GPU; `kind` says what a step is."""

    kind: str
    step: Step
    wait: Callable[[], object]
    by_host: bool = False  # whether a step takes as long as the host needs for it, not the GPU


def main(regime: str, mode: str, folder: str) -> None:
    """Measure.

    `regime`: "launch" (the host launches and does nothing else), "steady" (the GPU is busy, some 10,000 launches a second), "bound"
    (the host is busy), "graph" (the forward pass is replayed from a graph of CUDA, as servers do). `mode`: "activity", "every call"
    (enquiries too) or "callbacks".
    """
    torch = torch_or_none()
    try:
        if torch is None and regime == "graph":
            raise UllageError("graphs are captured with PyTorch, which is not here", "install torch")
        load = own_load(Device(), regime) if torch is None else trained_load(torch, regime)
        tell(load=load.kind)
        measure(load, mode, folder)
    except UllageError as error:
        tell(**refusal(error))


def measure(load: SteppedLoad, mode: str, folder: str) -> None:
    """Tell the times of a step before the recorder comes, with it in turns on and off, and after it went."""
    before = [window(load)[1] for _ in range(ALONE)]
    made = attached(mode, folder)
    count, each = window(load)
    with_, without, steps, seconds = pairs(load, made)
    steps, seconds = steps + count, seconds + count * each
    path = made.path
    made.detach()
    after = [window(load)[1] for _ in range(ALONE)]
    tell(before=before, after=after, on=with_, off=without, steps=steps, seconds=seconds, path=str(path))


def own_load(device: Device, regime: str) -> SteppedLoad:
    """Return launches of kernels of ours: of the tensor-core kernel, each as long as a launch at `RATE` may take, or of one that ends
    sooner than the host can launch the next."""
    if regime == "steady":
        kernel = tensor_kernels(device)[0][0]
        launch = partial(kernel.launch, trips_lasting(device, kernel, 1 / RATE))
        return SteppedLoad(f"{kernel.name} kernels of ours", partial(_repeat, launch), device.wait)
    return SteppedLoad("short kernels of ours", partial(_repeat, partial(device.spin, 1)), device.wait, by_host=True)


def _repeat(launch: Callable[[], object]) -> None:
    for _ in range(LAUNCHES):
        launch()


def trained_load(torch: Any, regime: str) -> SteppedLoad:
    """Return training steps. Where the GPU is to be busy rows are doubled until a step takes as long as its launches should."""
    kind, wait = "training in PyTorch", torch.cuda.synchronize
    if regime == "graph":
        return SteppedLoad("a forward pass in a CUDA graph of PyTorch", replayed_pass(torch), wait)
    if regime == "launch":
        some = torch.zeros(16, device="cuda")
        return SteppedLoad("additions of PyTorch in place", partial(_repeat, partial(some.add_, 1.0)), wait, by_host=True)
    if regime != "steady":
        return SteppedLoad(kind, stepper(torch, nullcontext, *TINY), wait, by_host=True)
    rows = 256
    while True:
        load = SteppedLoad(kind, stepper(torch, nullcontext, rows, WIDTH), wait)
        window(load)
        if window(load)[1] >= LAUNCHES / RATE or rows >= MOST_ROWS:
            return load
        rows *= 2


def replayed_pass(torch: Any) -> Step:
    """Return a function that replays the forward pass over a few rows, as a server decodes: short kernels, one call for all of them."""
    model, data = network(torch), torch.randn(SERVED_ROWS, TRAINED_WIDTH, device="cuda", dtype=torch.bfloat16)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        model(data)  # what is loaded or allocated at first
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(data)
    return cast("Step", graph.replay)


def window(load: SteppedLoad) -> tuple[int, float]:
    """Return how many steps were done in a window, and how long one took: the GPU's time of it, or the host's."""
    load.wait()
    begin = time.perf_counter()
    moments = [begin]
    while moments[-1] - begin < WINDOW:
        load.step()
        moments.append(time.perf_counter())
    count = len(moments) - 1
    load.wait()
    if load.by_host:  # the median: what else the machine does now and then lengthens some steps a lot
        return count, median(after - before for before, after in pairwise(moments))
    return count, (time.perf_counter() - begin) / count


def pairs(load: SteppedLoad, made: Recorder) -> tuple[list[float], list[float], int, float]:
    """Return the times of a step with and without, how many steps were recorded in all, and the seconds that they took."""
    times: dict[bool, list[float]] = {True: [], False: []}
    steps, seconds, running = 0, 0.0, True
    for turn in range(PAIRS):
        for on in (True, False) if turn % 2 else (False, True):
            if on != running:
                (made.start if on else made.stop)()
                running = on
            count, each = window(load)
            times[on].append(each)
            steps, seconds = steps + on * count, seconds + on * count * each
    return times[True], times[False], steps, seconds


def attached(mode: str, folder: str) -> Recorder:
    """Attach the recorder in C. Raises UllageError where it can't be built."""
    kinds = DEFAULT - ({ActivityKind.RUNTIME, ActivityKind.DRIVER} if mode == "callbacks" else set())
    settings = tracing(find(), kinds) | {"ULLAGE_CALLBACKS": "runtime,driver" if mode == "callbacks" else ""}
    if mode == "every call":
        settings["ULLAGE_CALLS_LEFT_OUT"] = ""
    made = this_recorder()
    made.attach(folder, settings)
    return made
