"""The trees of one process, as they are handed to it: also where NumPy and pyarrow are not installed, and notes say why there are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ullage.errors import harmless
from ullage.views.document import document

if TYPE_CHECKING:
    from ullage.metrics.tree import Node
    from ullage.recording import Mode
    from ullage.totals import DeviceTotals, HostTotals

NOTHING = "nothing is recorded yet"
_BAR = 20  # cells


@dataclass(frozen=True)
class ProcessTree:
    """The host's and the device's efficiency tree of one process, or of a region of it, over `elapsed` ns; prints as text.

    A tree is None where nothing was recorded that it could be computed from. The totals have collectives apart (`ai` mode) or count
    them as useful work (`talp`). `notes` say what the numbers rest on.
    """

    name: str
    elapsed: int = 0
    mode: Mode = "talp"
    host: Node | None = None
    device: Node | None = None
    host_totals: HostTotals | None = None
    device_totals: DeviceTotals | None = None
    notes: tuple[str, ...] = ()

    def __getitem__(self, metric: str) -> float | None:
        """Return an efficiency by its metric's name, None where it is not known. Raises KeyError for one that the trees don't have."""
        for name, value in self.items():
            if name == metric:
                return value
        raise KeyError(f"no efficiency is called '{metric}'; there are {', '.join(name for name, _ in self.items())}")

    def items(self) -> Iterator[tuple[str, float | None]]:
        """Yield each efficiency's name and value, the host's first, parents before children."""
        return ((node.metric, node.value) for tree in (self.host, self.device) if tree is not None for _, node in tree.walk())

    def json(self) -> dict[str, Any]:
        """Return the trees as plain data that says what it is: `as_data` with the name of its schema and Ullage's version."""
        return document("process-tree", self.as_data())

    def as_data(self) -> dict[str, Any]:
        """Return the trees as plain data: efficiencies by their metrics' names in [0, 1], times in ns, null for what is not known."""
        trees = {"host": self.host, "device": self.device}
        return {
            "name": self.name,
            "mode": self.mode,
            "elapsed_ns": self.elapsed,
            **{name: None if tree is None else {n.metric: n.value for _, n in tree.walk()} for name, tree in trees.items()},
            "bounds": {name: None if tree is None else {n.metric: [n.low, n.high] for _, n in tree.walk()} for name, tree in trees.items()},
            "host_totals": None if self.host_totals is None else asdict(self.host_totals),
            "device_totals": None if self.device_totals is None else asdict(self.device_totals),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """Return the trees as text, a line an efficiency."""
        lines = [f"{harmless(self.name, 60)}, {self.elapsed / 1e9:.6g} s, {self.mode} mode"]
        for title, tree in (("Host", self.host), ("Device", self.device)):
            if tree is not None:
                lines += [_line(title if depth == 0 else "", depth, node) for depth, node in tree.walk()]
        return "\n".join([*lines, *(f"note: {harmless(note, 1000)}" for note in self.notes)])


def _line(title: str, depth: int, node: Node) -> str:
    label = f"{title:8}{'  ' * depth}{node.label}"
    if node.value is None:
        return f"{label:44}  unknown"
    if not node.certain:
        return f"{label:44}     ?  cannot tell: {node.low:.2f} to {node.high:.2f}"
    filled = round(node.value * _BAR)
    return f"{label:44}  {node.value:.2f}  {'█' * filled}{'·' * (_BAR - filled)}"
