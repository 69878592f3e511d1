"""What the Slurm prolog of AMD's device-metrics-exporter writes: a JSON object per GPU, in a file named after the GPU.

Source: ROCm/device-metrics-exporter, `example/slurm/exporter-prolog.sh`: keys SLURM_JOB_ID, SLURM_JOB_USER,
SLURM_CLUSTER_NAME and more. The last writer wins, so a GPU has one job. As with dcgm-exporter's mapping the folder
says who holds a GPU now; folders named after hosts may lie in one folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa

from ullage.problems import Problems
from ullage.sources.jobs.job import job_source
from ullage.sources.jobs.mapping import content, gpu_files
from ullage.sources.jobs.record import Record, table
from ullage.sources.source import Place


def recognise(place: Place) -> int:
    """Return 2 for a folder of files named after GPUs of which one holds JSON with Slurm's job id."""
    return 2 if any("SLURM_JOB_ID" in content(path) for _, path in gpu_files(place.path)[:64]) else 0


@job_source("amd", recognise=recognise, reads="a folder of the Slurm prolog of AMD's device-metrics-exporter")
def read(place: Place, problems: Problems, zone: ZoneInfo | None) -> pa.Table:  # noqa: ARG001
    """Return a record per GPU, without times: who holds it now. Files that are no such JSON are counted."""
    problems.note(f"{place.name} says who holds a GPU now, not since when: its jobs are taken to hold it all the time")
    return table(_records(place, problems), problems, place.name)


def _records(place: Place, problems: Problems) -> Iterator[Record]:
    for host, path in gpu_files(place.path):
        try:
            told = msgspec.json.decode(content(path), type=dict[str, str | int | None])
        except (msgspec.DecodeError, RecursionError):
            problems.drop("files of the Slurm prolog that are not JSON", where=path.name)
            continue
        job = str(told.get("SLURM_JOB_ID") or "").strip()
        if job:
            user, cluster = (str(told.get(key) or "") or None for key in ("SLURM_JOB_USER", "SLURM_CLUSTER_NAME"))
            yield Record(job, user=user, cluster=cluster, host=host, index=int(path.name.partition(".")[0]))
