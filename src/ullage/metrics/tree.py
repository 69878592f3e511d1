"""Trees of efficiencies: which metric is the product of which, and their values with bounds from sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ullage.metrics.metric import METRICS

CANNOT_TELL = 0.2  # a value whose bounds are farther apart than this is not stated


@dataclass(frozen=True)
class Branch:
    """A metric's place in a tree: its label there, and the metrics of which it is the product."""

    metric: str
    label: str
    children: tuple[Branch, ...] = ()


DEVICE_TALP = Branch(
    "device_parallel_efficiency",
    "Parallel efficiency",
    (
        Branch("device_load_balance", "Load balance"),
        Branch("device_communication_efficiency", "Communication efficiency"),
        Branch("orchestration_efficiency", "Orchestration efficiency"),
    ),
)
_ARRIVALS = (Branch("transfer_efficiency", "Transfer"), Branch("arrival_efficiency", "Waiting for late ranks"))
DEVICE_AI = Branch(
    "device_parallel_efficiency",
    "Parallel efficiency",
    (
        Branch("device_load_balance", "Load balance"),
        Branch(
            "device_communication_efficiency",
            "Communication efficiency",
            (Branch("collective_efficiency", "Collectives", _ARRIVALS), Branch("copy_efficiency", "Copies")),
        ),
        Branch("orchestration_efficiency", "Orchestration efficiency"),
    ),
)


@dataclass(frozen=True)
class Node:
    """An efficiency in a tree: `value` in [0, 1] (None without a denominator), and the bounds between which it surely lies.

    `low` and `high` equal `value` when nothing is in doubt. `doubt` is how far apart the bounds are for what the value stands for,
    where `low` and `high` hold more than that (None: they don't): the time in which not all ranks were recorded.
    """

    metric: str
    label: str
    value: float | None
    low: float | None
    high: float | None
    children: tuple[Node, ...] = ()
    doubt: float | None = None

    @property
    def exact(self) -> bool:
        """Whether nothing is in doubt."""
        return self.low == self.high

    @property
    def certain(self) -> bool:
        """Whether the bounds are close enough for the value to be stated."""
        if self.low is None or self.high is None:
            return True
        return (self.high - self.low if self.doubt is None else self.doubt) <= CANNOT_TELL

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Node]]:
        """Yield this node and all below it, each with its depth, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    def find(self, metric: str) -> Node | None:
        """Return the node of a metric."""
        return next((node for _, node in self.walk() if node.metric == metric), None)

    def leaves(self) -> tuple[Node, ...]:
        """Return the factors whose product this node is."""
        return tuple(node for _, node in self.walk() if not node.children)


def evaluate(branch: Branch, sums: Mapping[str, float]) -> Node:
    """Return a tree's values from sums by the names of the metrics' parameters.

    Children of which a sum is not known are left out: their parent stands alone.

    >>> evaluate(DEVICE_TALP, dict(kernel_time=120, devices=2, elapsed=100, max_kernel_time=75, max_active_time=80)).value
    0.6
    """
    metric = METRICS[branch.metric]
    value = metric.function(**{name: sums[name] for name in metric.parameters})
    known = all(name in sums for child in branch.children for name in METRICS[child.metric].parameters)
    children = tuple(evaluate(child, sums) for child in branch.children) if known else ()
    return Node(branch.metric, branch.label, value, value, value, children)


def bounded(node: Node, bounds: Mapping[str, tuple[float, float]]) -> Node:
    """Return a tree with bounds by metric; metrics without any stay exact.

    >>> alone = Node("orchestration_efficiency", "Orchestration efficiency", 0.5, 0.5, 0.5)
    >>> bounded(alone, {"orchestration_efficiency": (0.5, 0.9)}).certain
    False
    """
    low, high = bounds.get(node.metric, (node.low, node.high))
    return replace(node, low=low, high=high, children=tuple(bounded(child, bounds) for child in node.children))


def widened(node: Node, bounds: Mapping[str, tuple[float, float]]) -> Node:
    """Return a tree whose bounds hold other bounds too: those over more time than the values stand for, which stay as certain as they were.

    >>> alone = Node("orchestration_efficiency", "Orchestration", 0.6, 0.6, 0.6)
    >>> found = widened(alone, {"orchestration_efficiency": (0.1, 0.5)})
    >>> (found.low, found.high, found.certain)
    (0.1, 0.6, True)
    """
    children = tuple(widened(child, bounds) for child in node.children)
    more = bounds.get(node.metric)
    if more is None or node.low is None or node.high is None:
        return replace(node, children=children)
    return replace(node, low=min(node.low, more[0]), high=max(node.high, more[1]), doubt=node.high - node.low, children=children)
