"""The loss bill: how much of what a machine falls short of full is due to which factor of its efficiency tree.

Factors multiply, so their logarithms add: a factor's share of the loss is −ln(factor) over the sum of all. Shares add up to 1
whatever the order of the factors is, unlike steps from full down to the result, where the last step looks small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ullage.metrics.tree import Node

HOUR = 3600  # seconds


@dataclass(frozen=True)
class Loss:
    """What one factor costs: its share of the loss, in seconds of a resource, and in money (None without a price).

    A factor that is not known on its own stands together with others: `metric` then joins their names by `_x_`, `label` by ×.
    A factor above 1 is a gain: share, seconds and money are negative. `share` is None where the factors lose nothing in sum.
    """

    metric: str
    label: str
    share: float | None
    seconds: float
    money: float | None


@dataclass(frozen=True)
class Bill:
    """What a tree loses in all, and its parts in the order of the tree; the parts add up to the whole.

    `seconds` is None, and there are no parts, where the tree's own value is not known: `unsplit` then names all factors, and
    otherwise those whose loss is known only together.
    """

    metric: str
    seconds: float | None
    money: float | None
    losses: tuple[Loss, ...]
    unsplit: tuple[str, ...] = ()


def bill(tree: Node, capacity: int, price: float | None = None) -> Bill:
    """Return what each leaf of a tree costs of `capacity`, in ns: the devices' or the processes' time, m × E or n × E.

    `price` is for an hour of one device or process. What is lost, `capacity` × (1 − value), is split by −ln of each leaf; a
    factor of 1 costs nothing, a factor of 0 takes everything (several share it evenly). Factors that are not known, or known too
    loosely to be stated, are one part: what the others leave of the whole.

    Two GPUs for 500 s, half of it lost: load balance √½ and orchestration √½ cost 250 GPU-seconds each.

    >>> leaves = [Node(name, name, v, v, v) for name, v in (("balance", 0.5**0.5), ("orchestration", 0.5**0.5), ("copies", 1.0))]
    >>> [round(part.seconds) for part in bill(Node("efficiency", "", 0.5, 0.5, 0.5, tuple(leaves)), 1000 * 10**9).losses]
    [250, 250, 0]
    """
    leaves = tree.leaves()
    if tree.value is None or not tree.certain:
        return Bill(tree.metric, None, None, (), tuple(leaf.metric for leaf in leaves))
    lost = capacity * (1 - tree.value) / 1e9
    parts = list(_parts(tree.value, leaves))
    shares = _shares([cost for _, _, cost in parts])
    scale = _mean(tree.value) * capacity / 1e9  # seconds that a unit of −ln costs
    losses = []
    for (metric, label, cost), share in zip(parts, shares, strict=True):
        seconds = cost * scale if share is None else share * lost
        losses.append(Loss(metric, label, share, seconds, _priced(seconds, price)))
    return Bill(tree.metric, lost, _priced(lost, price), tuple(losses), tuple(leaf.metric for leaf in leaves if not _known(leaf)))


def _known(leaf: Node) -> bool:
    return leaf.value is not None and leaf.certain


def _parts(whole: float, leaves: tuple[Node, ...]) -> Iterator[tuple[str, str, float]]:
    """Yield metric, label and −ln of each known leaf, and of the unknown ones together, in the place of the first of them."""
    unknown = [leaf for leaf in leaves if not _known(leaf)]
    known = {leaf.metric: _cost(leaf.value) for leaf in leaves if _known(leaf) and leaf.value is not None}
    for leaf in leaves:
        if leaf.metric in known:
            yield leaf.metric, leaf.label, known[leaf.metric]
        elif leaf is unknown[0]:
            rest = _rest(_cost(whole), sum(known.values()))
            yield "_x_".join(u.metric for u in unknown), " × ".join(u.label for u in unknown), rest


def _cost(factor: float) -> float:
    return -math.log(factor) if factor > 0 else math.inf


def _rest(whole: float, known: float) -> float:
    if math.isinf(known):  # a factor of 0 is known: it takes everything
        return 0.0
    return max(whole - known, 0.0)


def _shares(costs: list[float]) -> list[float | None]:
    zeros = sum(math.isinf(cost) for cost in costs)
    if zeros:
        return [1 / zeros if math.isinf(cost) else 0.0 for cost in costs]
    total = math.fsum(costs)
    if not any(costs):
        return [0.0] * len(costs)
    return [cost / total for cost in costs] if total > 0 else [None] * len(costs)


def _mean(value: float) -> float:
    """Return (1 − value) / −ln(value), the logarithmic mean of 1 and the value; 1 in the limit."""
    if value <= 0:
        return 0.0
    return (1 - value) / -math.log(value) if abs(1 - value) > 1e-9 else 1.0


def _priced(seconds: float, price: float | None) -> float | None:
    return None if price is None else seconds / HOUR * price
