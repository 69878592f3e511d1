"""An image of counter data: what a GPU counted, in NVIDIA's own form, kept with what is needed to make numbers of it elsewhere."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

from ullage.errors import UllageError


@dataclass(frozen=True)
class CounterImage:
    """Counter data of one collection.

    `use` is "range" or "pm"; `metrics` are complete names; `ranges` the names of its ranges, or `times` the start and end of its samples
    (ns, the GPU's clock). `version` is CUPTI's API version, of which the image is; another one may not read it.
    """

    use: str
    chip: str
    metrics: tuple[str, ...]
    version: int | None
    data: bytes
    ranges: tuple[str, ...] = ()
    times: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        """How many ranges or samples it holds."""
        return len(self.ranges) if self.use == "range" else len(self.times)

    def packed(self) -> bytes:
        """Return it as the payload of an IMAGE chunk of a recording (`chunks`)."""
        told = json.dumps({name: value for name, value in asdict(self).items() if name != "data"}).encode()
        head = struct.pack("<I", len(told)) + told
        return head + bytes(-len(head) % 8) + self.data


def unpacked(payload: bytes) -> CounterImage:
    """Return the image that a chunk holds. Raises UllageError for a damaged one.

    >>> image = CounterImage("range", "GH100", ("sm__cycles_active.sum",), 130001, b"xyz", ranges=("0",))
    >>> unpacked(image.packed()) == image
    True
    """
    try:
        (length,) = struct.unpack_from("<I", payload)
        told = json.loads(payload[4 : 4 + length])
        start = 4 + length + -(4 + length) % 8
        times = tuple((int(begin), int(end)) for begin, end in told["times"])
        names = {name: tuple(map(str, told[name])) for name in ("metrics", "ranges")}
        version = None if told["version"] is None else int(told["version"])
        return CounterImage(str(told["use"]), str(told["chip"]), version=version, data=payload[start:], times=times, **names)
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UllageError("an image of counter data is damaged", "record it again") from error
