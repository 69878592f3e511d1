"""What NCCL itself told of a process' collectives: records of NCCL, of which those of one collective become one."""

from __future__ import annotations

import numpy as np

from ullage.cupti.chunks import NCCL
from ullage.problems import Problems
from ullage.recording import NcclCollectives
from ullage.traces.recorded.facts import RecordingFacts

WITHOUT_SENSE = "collectives of NCCL without sense"
NO_ROOM = "collectives of NCCL that the recorder had no room for"


def nccl_collectives(told: RecordingFacts, problems: Problems, place: str) -> NcclCollectives | None:
    """Return a recording's collectives in the order in which they were enqueued, None where NCCL told of none.

    Of what was told of a collective the last counts. What can't be is dropped and counted.
    """
    said = told.info.get("nccl")
    counted, lost = (_count(said, key) for key in ("counted", "lost"))
    rows = np.concatenate([*told.nccl, np.zeros(0, NCCL)])
    rows = rows[len(rows) - 1 - np.unique(rows["serial"][::-1], return_index=True)[1]]
    sense = (rows["start"] > 0) & ((rows["end"] == 0) | (rows["end"] >= rows["start"])) & (rows["start"] < 2**62) & (rows["end"] < 2**62)
    sense &= (rows["rank"] >= 0) & (rows["rank"] < rows["ranks"]) & (rows["gpu_start"] < 2**62) & (rows["gpu_end"] < 2**62)
    problems.drop(WITHOUT_SENSE, int((~sense).sum()), place)
    problems.drop(NO_ROOM, lost, place)
    rows = rows[sense]
    if not len(rows) and not counted:
        return None
    words = {name for column in ("name", "function", "datatype", "algorithm", "protocol") for name in np.unique(rows[column]).tolist()}
    names = {number: told.host_names.get(number, "") for number in sorted(words)}
    return NcclCollectives(rows[np.argsort(rows["start"], kind="stable")], names, counted, lost)


def _count(said: object, key: str) -> int:
    value = said.get(key) if isinstance(said, dict) else None
    return value if type(value) is int and 0 <= value < 2**62 else 0
