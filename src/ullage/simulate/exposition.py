"""What dcgm-exporter writes: a host's page of text at one time, with the old names and units or the new ones.

Format: dcgm-exporter's template `internal/pkg/rendermetrics/render_metrics.go`: label order gpu, UUID, pci_bus_id, device,
modelName, Hostname, then label-type fields, then attributes such as hpc_job; values are integers or have six decimals.
Names, units and help texts: `ullage.sources.naming.dcgm_names`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.simulate.changes import SimulatedDevice
from ullage.simulate.exporter import SENTINELS, Emission, scale
from ullage.simulate.specification import NOT_READ, Specification, host_name, uuid
from ullage.sources.naming.dcgm_names import NEW, OLD, Name

DRIVER = "580.95.05"


@dataclass(frozen=True)
class HostPages:
    """One host's pages: its readings as they go over the wire, and the words for names and labels."""

    specification: Specification
    given: Emission
    names: dict[str, Name]
    labels: list[str]  # of each device, without braces and without a job
    jobs: list[str]
    elsewhere: dict[int, list[str]] = field(default_factory=dict)  # the same at other places, by their number

    @property
    def count(self) -> int:
        """How many different pages there are."""
        return int(self.given.present.shape[1])

    def window_at(self, time: int) -> int:
        """Return which page the exporter serves at a time in ms: the last that was collected by then, at least the first."""
        return max(0, int(np.searchsorted(self.given.times[1:], time, side="right")) - 1)

    def page(self, window: int) -> str:
        """Return the page after a window, one line a metric and GPU; a GPU that is silent then is left out."""
        return "".join(f"{head}{body}" for head, body in self.groups(window))

    def groups(self, window: int) -> Iterator[tuple[str, str]]:
        """Yield the page in parts, one a metric: the two comment lines, and the lines of its GPUs."""
        labels = [self.holders(row, window) for row in range(len(self.labels))]
        for column, name in self.names.items():
            numbers = self.texts(column, np.s_[:, window])
            lines = [
                f"{name.name}{{{words}}} {number}\n" for number, holders in zip(numbers, labels, strict=True) if number for words in holders
            ]
            if not lines and self.given.place is not None:
                continue  # what no device gives just then has no comment lines either
            yield f"# HELP {name.name} {name.help}\n# TYPE {name.name} {name.kind}\n", "".join(lines)

    def holders(self, row: int, window: int) -> list[str]:
        """Return the labels of a GPU, once for each copy that the exporter gives of its readings after a window."""
        given = self.given
        if not given.present[row, window]:
            return []
        labels = self.labels if given.place is None else self.elsewhere.get(int(given.place[window]), self.labels)
        holder = self.labels_of(labels[row], int(given.first[row, window]))
        if given.second[row, window] >= 0:
            return [holder, self.labels_of(labels[row], int(given.second[row, window]))]
        return [holder] if given.copies[row] == 1 else [f'{holder},vgpu="{copy}"' for copy in range(given.copies[row])]

    def labels_of(self, labels: str, job: int) -> str:
        """Return the labels of a device that a job holds; -1 is no job."""
        return labels if job < 0 else f'{labels},hpc_job="{self.jobs[job]}"'

    def texts(self, field: str, where: Any) -> list[str]:
        """Return the numbers of a field as they are written, "" for one that is not; `where` picks a row or a window of [rows, windows]."""
        name, wire = self.names[field], self.given.wire[field][where]
        factor = scale(self.given, field, name.factor)
        unread = wire == NOT_READ if wire.dtype.kind == "i" else np.isnan(wire)
        if unread.any():
            written = self._written(field, where, np.where(unread, 0, wire), factor)
            return ["" if nothing else text for nothing, text in zip(unread.tolist(), written, strict=True)]
        return self._written(field, where, wire, factor)

    def _written(self, field: str, where: Any, wire: npt.NDArray[Any], factor: float) -> list[str]:
        name = self.names[field]
        texts = _integers(wire, factor) if not name.decimals else [f"{number:.6f}" for number in (wire * factor).tolist()]
        form = self.given.form[where]
        if form.any() and self.given.wire[field] is not self.given.values[field]:
            texts = [SENTINELS[number - 1] if number else text for number, text in zip(form.tolist(), texts, strict=True)]
        return texts


def _integers(column: npt.NDArray[Any], factor: float) -> list[str]:
    if column.dtype.kind == "i":
        return [str(number) for number in column.tolist()]
    return [str(round(number)) for number in (column * factor).tolist()]


def pages(
    specification: Specification, given: Emission, jobs: list[str], *, new_names: bool = False, places: Sequence[tuple[str, str]] = ()
) -> HostPages:
    """Return a host's pages. `jobs` are the ids of the fleet's jobs, by number; `new_names` are those of DCGM 4.6 and later.

    `places` are the clusters and names of hosts by number, where these change in time.
    """
    names = NEW if new_names else OLD

    def labels_at(place: tuple[str, str] | None) -> list[str]:
        return [gpu_labels(specification, row.gpu, given.device.model, new_names=new_names, row=row, place=place) for row in given.rows]

    elsewhere = {} if given.place is None else {number: labels_at(places[number]) for number in np.unique(given.place).tolist()}
    exported = {name: names[name] for name in names if name in specification.exported}
    return HostPages(specification, given, exported, labels_at(None), jobs, elsewhere)


def gpu_labels(
    specification: Specification,
    gpu: int,
    model: str,
    *,
    new_names: bool = False,
    row: SimulatedDevice | None = None,
    place: tuple[str, str] | None = None,
) -> str:
    """Return a GPU's labels without braces, in the template's order; `row` may be an instance of it, `place` another cluster and host.

    No exporter knows its cluster: where that changes, the label is the one that a server adds to what it scrapes.

    >>> gpu_labels(Specification(), 9, "NVIDIA H100 80GB HBM3").split(",")[2:5]
    ['pci_bus_id="00000000:2B:00.0"', 'device="nvidia1"', 'modelName="NVIDIA H100 80GB HBM3"']
    """
    index = gpu % specification.gpus_per_host
    host, driver = ("hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION") if new_names else ("Hostname", "DCGM_FI_DRIVER_VERSION")
    labels = {
        "gpu": index,
        "UUID": uuid(specification, gpu),
        "pci_bus_id": f"00000000:{27 + 16 * index & 255:02X}:00.0",
        "device": f"nvidia{index}",
        "modelName": model,
        **({"GPU_I_PROFILE": row.profile, "GPU_I_ID": row.instance} if row and row.profile else {}),
        host: place[1] if place else host_name(gpu // specification.gpus_per_host),
        driver: DRIVER,
        **({"cluster": place[0]} if place and specification.changes_any("reclustered") else {}),
    }
    return ",".join(f"{name}={json.dumps(str(value))}" for name, value in labels.items())
