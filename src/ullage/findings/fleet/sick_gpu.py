"""GPUs that told of faults of their hardware."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ullage.findings.fleet_evidence import FleetEvidence, SickGpu
from ullage.findings.kind import fleet_kind
from ullage.views.notation import COUNT, WORDS
from ullage.views.view import Confidence, Fact, Finding, FindingPlace

# NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors): those that the hardware, its memory or its links cause. Others, such as 13, 31
# and 43, are mostly programs that read where they must not, or that were stopped.
MEMORY_XIDS, LINK_XIDS, LOST_XIDS = frozenset({48, 63, 64, 92, 94, 95, 140}), frozenset({74}), frozenset({62, 79, 119, 120})
HARDWARE_XIDS = MEMORY_XIDS | LINK_XIDS | LOST_XIDS
REPLACE_XIDS = frozenset({64, 95})
LEAST_REPLAYS = 100  # of NVLink packets: a link sends one again now and then

WORDS_OF: Final = {
    "ecc_uncorrected": "ECC errors not corrected",
    "remapped_rows": "memory rows remapped",
    "nvlink_replays": "NVLink packets sent again",
    "nvlink_recoveries": "NVLink recoveries",
}


@fleet_kind(
    "sick_gpu",
    "sick GPU",
    part="no part of the ullage: GPU-hours since a GPU told of a fault of its hardware",
    however_small=True,
)
def sick_gpu(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the GPUs whose memory, link or chip told of an error that no program causes."""
    for one in fleet.sick:
        if _is_sick(one):
            yield _finding(one)


def _is_sick(one: SickGpu) -> bool:
    counted = {name for name, count in one.errors.items() if name != "nvlink_replays" or count >= LEAST_REPLAYS}
    return bool(counted or HARDWARE_XIDS & set(one.xids))


def _finding(one: SickGpu) -> Finding:
    failed = "remap_failed" in one.errors
    confidence: Confidence = "high" if failed or len(one.errors) + len(HARDWARE_XIDS & set(one.xids)) > 1 else "medium"
    return Finding(
        where=FindingPlace(cluster=one.cluster, host=one.host, index=one.index, gpu=one.gpu),
        owner="the operators of the hosts",
        gpu_hours=one.hours,
        confidence=confidence,
        evidence=(
            *([Fact("Xid", ", ".join(map(str, one.xids)), WORDS)] if one.xids else []),
            *(Fact(words, int(one.errors[name]), COUNT) for name, words in WORDS_OF.items() if name in one.errors),
            *([Fact("remapping a memory row", "failed", WORDS)] if failed else []),
            Fact("jobs on it since", len(one.jobs), COUNT),
        ),
        advice=_advice(one, failed=failed),
    )


def _advice(one: SickGpu, *, failed: bool) -> str:
    if failed or REPLACE_XIDS & set(one.xids):
        return "take it out of service and have it replaced: its memory can't be repaired any more"
    if LOST_XIDS & set(one.xids):
        return "drain the host, reset the GPU or restart the host, and run dcgmi diag -r 3 before it gets another job"
    if not MEMORY_XIDS & set(one.xids) and not one.errors.keys() & {"ecc_uncorrected", "remapped_rows"}:
        return "drain the host and look at the NVLink (nvidia-smi nvlink -e): jobs that use it fail or wait"
    return "drain the host and reset the GPU, so that remapped rows take effect; replace it when errors come again"
