"""The program that Compute Sanitizer watches: the kernels of one microbenchmark, each once at a small size, or one with a planted fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gpu.apart import tell
from ullage.benches.bench import BENCHES, Arrays, Case, Output, Target, cases_for
from ullage.benches.running.device import BenchDevice, open_device
from ullage.benches.running.kernel_case import KernelQueue, UnmeasuredError, check, loaded

SEED = 1
SMS, L2, MEMORY = 2, 2**20, 2**26  # of the GPU that cases are laid out for: a small one, so that a watched kernel ends soon
FAULTS = {
    "memcheck": "output[threadIdx.x + (trips << 20)] = trips;",
    "racecheck": "__shared__ int cell[32]; cell[threadIdx.x] = trips; output[threadIdx.x] = cell[31 - threadIdx.x % 32];",
    "synccheck": "if (threadIdx.x < 16) __syncthreads(); output[threadIdx.x] = trips;",
}
THREADS = 64


def main(what: str, name: str) -> None:
    """Run the kernels of a bench ("bench", its name), or the one with the fault that a tool must find ("fault", the tool).

    Tells how many `kernels` ran, and how many gave a wrong result (`wrong`) or could not run, the first with its `problem`.
    """
    device = open_device(0)
    target = small(device.target())
    cases = kernels(cases_for(BENCHES[name], target)) if what == "bench" else [faulty(name)]
    facts: dict[str, Any] = {"kernels": 0, "of": 0, "wrong": 0, "problem": ""}
    for case in cases:
        facts["of"] += 1
        try:
            run(case, device, target.architecture)
            facts["kernels"] += 1
        except UnmeasuredError as error:
            facts["kernels"], facts["wrong"] = facts["kernels"] + 1, facts["wrong"] + 1
            facts["problem"] = facts["problem"] or error.problem
        except Exception as error:  # what one kernel lacks, the next may have
            facts["problem"] = facts["problem"] or f"{type(error).__name__}: {str(error)[:200]}"
            device.notice(error)
            if device.lost:
                break
        finally:
            device.release()
        tell(**facts)
    tell(**facts)
    device.close()


def small(target: Target) -> Target:
    """Return a target like another, with little of everything: cases are laid out by it."""
    return replace(target, sms=SMS, l2=L2, memory=MEMORY)


def kernels(cases: Iterable[Any]) -> Iterator[Case]:
    """Yield the first case of each distinct kernel: another size runs the same code."""
    seen = set()
    for case in cases:
        if isinstance(case, Case) and (mark := (case.source, case.entry, case.options, case.cluster)) not in seen:
            seen.add(mark)
            yield case


def run(case: Case, device: BenchDevice, architecture: str) -> None:
    """Run a kernel once on random data; raises UnmeasuredError where its result is wrong."""
    inputs = case.inputs(np.random.default_rng(SEED), "random")
    check(KernelQueue(case, device, loaded(case, device, architecture), inputs))


def faulty(tool: str) -> Case:
    """Return a kernel with the fault that a tool is made to find."""
    source = (
        'extern "C" __global__ void faulty(unsigned long long *clocks, int *output, int trips) {\n'
        f"    ULLAGE_BEGIN; {FAULTS[tool]} ULLAGE_END;\n}}\n"
    )

    def reference(inputs: Arrays, trips: int) -> Arrays:  # noqa: ARG001 - as the harness calls it
        return (np.full(THREADS, trips, np.int32),)

    outputs = (Output((THREADS,), "int32"),)
    return Case({}, source, "faulty", grid=1, block=THREADS, trips=1, outputs=outputs, reference=reference, quantities=("time",))
