"""Which ranks compute longer than others because they are fed more tokens, and which because they are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ullage.metrics.sequences import rank_imbalance, time_per_token
from ullage.sums.lanes.collectives.tokens import Fed
from ullage.sums.lanes.run import Run
from ullage.sums.lanes.spans import Times

CLEARLY = 1.1  # times as much as others from which on it is said
MOSTLY = 0.5  # of the imbalance must be gone at equal tokens for sequences to be its cause
LONGER, SLOWER = "longer sequences", "slower per token"


@dataclass(frozen=True)
class FedRank:
    """A rank over the common steps: `tokens` and `time` (ns of its kernels) are sums, `per_token` is in s.

    `relative_*` are times the median rank's. `finding` says in words what would make it compute longer than others; "" where nothing does.
    """

    label: str
    tokens: int
    time: int
    per_token: float
    relative_tokens: float
    relative_cost: float
    finding: str


@dataclass(frozen=True)
class Sequences:
    """The ranks that were fed tokens, in their order, over so many common `steps` (0: there are no profiler steps).

    `imbalance` is how many times as long the longest rank of a step computes as the mean one, `at_equal_tokens` the same if each rank had
    been fed the mean rank's tokens at its own cost per token.
    """

    steps: int
    imbalance: float
    at_equal_tokens: float
    ranks: tuple[FedRank, ...]


def sequences(run: Run) -> Sequences | None:
    """Return how ranks compare by token; None where fewer than two were fed a known number of tokens in common steps."""
    labels = {p.key: p.label for p in run.processes}
    found = [(labels[capture.recording.place, one.process], one) for capture in run.captures for one in capture.fed]
    if len(found) < 2:
        return None
    names = _common([one for _, one in found])
    tokens, time = (np.array([_at(one, values, names) for one, values in _columns(found, which)]) for which in ("tokens", "time"))
    used = (tokens > 0).all(axis=0) & (time > 0).all(axis=0)
    tokens, time = tokens[:, used], time[:, used]
    if not used.any():
        return None
    equal = time / tokens * tokens.mean(axis=0)
    rows = _ranks([label for label, _ in found], tokens.sum(axis=1), time.sum(axis=1))
    order = {p.label: place for place, p in enumerate(run.processes)}
    return Sequences(
        steps=int(used.sum()) if any(names) else 0,
        imbalance=float(rank_imbalance(time.max(axis=0).sum(), time.mean(axis=0).sum())),
        at_equal_tokens=float(rank_imbalance(equal.max(axis=0).sum(), equal.mean(axis=0).sum())),
        ranks=tuple(sorted(rows, key=lambda row: order[row.label])),
    )


def _columns(found: Sequence[tuple[str, Fed]], which: str) -> list[tuple[Fed, Times]]:
    return [(one, getattr(one, which)) for _, one in found]


def _common(found: Sequence[Fed]) -> list[str]:
    """Return the names of the steps that all have, in order; a name that comes twice tells no step."""
    counts = [Counter(one.names) for one in found]
    return [name for name in found[0].names if all(count[name] == 1 for count in counts)]


def _at(one: Fed, values: Times, names: Sequence[str]) -> Times:
    place = {name: n for n, name in enumerate(one.names)}
    return values[[place[name] for name in names]]


def _ranks(labels: Sequence[str], tokens: Times, time: Times) -> list[FedRank]:
    cost = time / tokens
    relative_tokens, relative_cost = tokens / np.median(tokens), cost / np.median(cost)
    return [
        FedRank(
            label,
            int(tokens[n]),
            int(time[n]),
            float(time_per_token(time[n] / 1e9, tokens[n])),
            float(relative_tokens[n]),
            float(relative_cost[n]),
            _finding(float(relative_tokens[n]), float(relative_cost[n])),
        )
        for n, label in enumerate(labels)
    ]


def _finding(tokens: float, cost: float) -> str:
    """Return why a rank computes longer than others.

    >>> _finding(1.8, 1.02), _finding(1.0, 1.5), _finding(1.0, 1.0)
    ('longer sequences', 'slower per token', '')
    """
    return " and ".join(word for word, much in ((LONGER, tokens), (SLOWER, cost)) if much >= CLEARLY)


def verdict(found: Sequences) -> str:
    """Return in words whether unequal sequences or a slow rank unbalance the steps; "" where nothing does to speak of.

    >>> verdict(Sequences(3, 1.5, 1.05, ())), verdict(Sequences(3, 1.5, 1.4, ())), verdict(Sequences(3, 1.0, 1.3, ()))
    ('unequal sequences, no slow rank', 'a slow rank, not its sequences', 'a slow rank has the shorter sequences')
    """
    if found.imbalance < CLEARLY:
        return "a slow rank has the shorter sequences" if found.at_equal_tokens >= CLEARLY else ""
    gone = (found.imbalance - found.at_equal_tokens) / (found.imbalance - 1)
    return "unequal sequences, no slow rank" if gone >= MOSTLY else "a slow rank, not its sequences"
