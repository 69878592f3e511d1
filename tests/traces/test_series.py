"""Totals of many steps at once, held against sets of ticks: processes and devices whose states, steps and names are drawn."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from tests.seeds import some
from ullage.recording import Recording
from ullage.sums.lanes import series
from ullage.sums.lanes.collectives.collectives import Collectives
from ullage.sums.lanes.kernels import Kernels
from ullage.sums.lanes.reduce import Reduced
from ullage.sums.lanes.run import Run, merge
from ullage.sums.lanes.spans import NONE, Spans, spans
from ullage.sums.lanes.states import DeviceState, ProcessState, RegionOccurrences

LENGTH = 60
HOST = ("useful", "useful", "offload", "communication", "recorder", "off")
DEVICE = ("idle", "kernel", "collective", "memory")
Step = tuple[str, int, int]


@dataclass
class Rank:
    """One process and its device: what each was doing at every tick, its steps, and when collectives moved data (None: not known)."""

    host: list[str]
    device: list[str]
    steps: list[Step]
    transfer: set[int] | None


def drawn(chance: random.Random) -> list[Rank]:
    """Return ranks whose states change now and then; steps have names of their own or none that tells them apart."""
    names = chance.choice(("abcdefg", "aab"))
    split = chance.random() < 0.7
    return [_rank(chance, names, split) for _ in range(chance.randrange(1, 4))]


def _rank(chance: random.Random, names: str, split: bool) -> Rank:
    host, device = _course(chance, HOST), _course(chance, DEVICE)
    begins = sorted(chance.sample(range(LENGTH - 1), chance.randrange(6)))
    steps = [(name, begin, min(begin + chance.randrange(1, 15), LENGTH)) for name, begin in zip(names, begins, strict=False)]
    if chance.random() < 0.5 and len(steps) > 1:
        del steps[chance.randrange(len(steps))]
    return Rank(host, device, steps, {t for t in range(LENGTH) if device[t] == "collective" and t % 2} if split else None)


def _course(chance: random.Random, states: tuple[str, ...]) -> list[str]:
    course: list[str] = []
    while len(course) < LENGTH:
        course += [chance.choice(states)] * chance.randrange(1, 9)
    return course[:LENGTH]


def run_of(ranks: list[Rank]) -> Run:
    """Return the run of these ranks, each in a capture of its own."""
    return merge(_capture(number, rank) for number, rank in enumerate(ranks))


def _capture(number: int, rank: Rank) -> Reduced:
    place = f"rank{number}.json"
    host = {state: _when(rank.host, state) for state in HOST}
    device = {state: _when(rank.device, state) for state in DEVICE}
    steps = RegionOccurrences(
        tuple(name for name, _, _ in rank.steps), np.array([s for _, s, _ in rank.steps], int), np.array([e for _, _, e in rank.steps], int)
    )
    process = ProcessState(
        (place, 1), f"rank {number}", number, "node", (0, LENGTH), host["offload"], host["communication"], off=host["off"], off_known=True,
        recorder=host["recorder"], steps=steps, occurrences={"epoch": steps},
    )  # fmt: skip
    transfer = None if rank.transfer is None else _ticks(rank.transfer)
    mine = DeviceState(f"gpu-{number}", "H100", (process.key,), device["kernel"], device["collective"], device["memory"], transfer=transfer)
    recording = Recording(place, clock="utc", rank=number)
    return Reduced(recording, (0, LENGTH), (process,), (mine,), {}, Kernels(), Collectives())


def _when(course: list[str], state: str) -> Spans:
    return _ticks({t for t, now in enumerate(course) if now == state})


def _ticks(ticks: set[int]) -> Spans:
    return spans(*((t, t + 1) for t in sorted(ticks))) if ticks else NONE


def paired(ranks: list[Rank]) -> list[list[Step]]:
    """Return the steps that all ranks with any have, each as every rank has it."""
    having = [rank.steps for rank in ranks if rank.steps]
    first, found = having[0], []
    for place, (name, _, _) in enumerate(first):
        each = []
        for steps in having:
            words, own = [n for n, _, _ in steps], [n for n, _, _ in first]
            if len(set(words)) == len(words) and len(set(own)) == len(own):
                each += [step for step in steps if step[0] == name]
            else:
                each += steps[place : place + 1]
        if len(each) == len(having):
            found.append(each)
    return found


@pytest.mark.parametrize("block", some(range(20), 2))
@pytest.mark.parametrize("of", [series.steps, lambda run: series.occurrences(run, "epoch")], ids=["steps", "occurrences"])
def test_the_totals_of_each_step_are_those_of_its_ticks(of, block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        ranks = drawn(random.Random(seed))
        having = [rank for rank in ranks if rank.steps]
        found = of(run_of(ranks))
        if not having:
            assert found is None
            continue
        steps = paired(ranks)
        assert found is not None
        assert found.names == tuple(each[0][0] for each in steps)
        assert list(zip(found.start.tolist(), found.end.tolist(), strict=True)) == [each[0][1:] for each in steps]
        assert (found.skipped, found.more) == (max(len(rank.steps) for rank in having) - len(steps), 0)
        for each, host, device in zip(steps, found.host, found.device, strict=True):
            _compare(having, each, host, device)


def _compare(having: list[Rank], each: list[Step], host, device) -> None:
    lasts = [end - start for _, start, end in each]
    did = [rank.host[start:end] for rank, (_, start, end) in zip(having, each, strict=True)]
    ran = [rank.device[start:end] for rank, (_, start, end) in zip(having, each, strict=True)]
    assert (host.processes, host.elapsed) == (len(having), max(lasts))
    assert host.useful_time == sum(course.count("useful") for course in did)
    assert (host.offload_time, host.off_time) == tuple(sum(course.count(state) for course in did) for state in ("offload", "off"))
    assert host.max_busy_time == max(len(course) - course.count("communication") - course.count("recorder") for course in did)
    assert (device.devices, device.elapsed) == (len(having), max(lasts))
    kernel, collective, memory = ([course.count(state) for course in ran] for state in DEVICE[1:])
    assert (device.kernel_time, device.collective_time, device.memory_time) == (sum(kernel), sum(collective), sum(memory))
    assert device.max_kernel_time == max(kernel)
    assert device.max_kernel_collective_time == max(k + c for k, c in zip(kernel, collective, strict=True))
    assert device.max_active_time == max(k + c + m for k, c, m in zip(kernel, collective, memory, strict=True))
    moving = [
        None if rank.transfer is None else len(rank.transfer & set(range(start, end)))
        for rank, (_, start, end) in zip(having, each, strict=True)
    ]
    if None in moving:
        assert device.max_kernel_transfer_time is None
    else:
        assert device.max_kernel_transfer_time == max(k + (t or 0) for k, t in zip(kernel, moving, strict=True))


def test_of_many_steps_the_first_are_looked_at_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert series.MOST == 10_000
    run = run_of([Rank(["useful"] * LENGTH, ["idle"] * LENGTH, [("s", at, at + 2) for at in range(0, 10, 2)], None)])
    for most, names, more in ((4, 4, 1), (5, 5, 0)):
        monkeypatch.setattr(series, "MOST", most)
        found = series.steps(run)
        assert found is not None and (len(found.names), len(found.host), found.more, found.skipped) == (names, names, more, 0)
