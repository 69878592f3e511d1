"""Do the tiles in a kernel's name tell the FLOPs that the hardware counts, and does NVML's tensor activity agree with its counters?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from gpu import ncu
from gpu.check import Findings, NotMeasured, check
from gpu.machine import Machine
from gpu.pytorch import needed_torch
from gpu.telemetry import mean, watched
from gpu.tile_program import LONG, MARK, PRECISIONS, command, gemms
from ullage.benches.gemm_ofu_plan import PlannedGemm
from ullage.kernels.gemms.gemm import decode
from ullage.kernels.tiling import Cover
from ullage.reports.gemms.ofu_estimates import cover

ACTIVE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
# By precision, what counts its operations, by the names that Hopper has; asked for where ncu gives no list of its own.
USUAL = {
    "fp16": "sm__ops_path_tensor_src_fp16",
    "bf16": "sm__ops_path_tensor_src_bf16_dst_fp32",
    "tf32": "sm__ops_path_tensor_src_tf32_dst_fp32",
    "fp8": "sm__ops_path_tensor_src_fp8",
}
NEAR = 1000  # FLOPs: how near the OFU paper's closed form came, in all cases
APART = 0.05  # of tensor activity between NVML and ncu: beyond, they mean different things
SECONDS = 3.0


@check(
    headline="{exact} of {predicted} kernels as their names tell; activity {tensor_active_nvml:.3f} (NVML), {tensor_active_ncu:.3f} (ncu)",
    loaded=True,
    answers={
        "counted": "products whose FLOPs were counted",
        "predicted": "of these, products whose kernel's name tells them",
        "largest_difference": "between both, FLOPs",
        "exact": "predicted ones that are within 1000 FLOPs",
        "tensor_active_nvml": "tensor activity by NVML during BF16 products of size 8192, back to back",
        "tensor_active_ncu": "the same by ncu's sm__pipe_tensor_cycles_active, of one such product",
    },
    columns={
        "precision": "of the operands",
        "m": "rows of A",
        "n": "columns of B",
        "k": "what is summed over",
        "kernel": "by ncu",
        "needed": "2·M·N·K",
        "counted": "FLOPs by the hardware's counter",
        "predicted": "from the tile and cluster in the name",
        "difference": "counted - predicted",
        "unknown": "why there is no prediction",
    },
)
def tile_flops(machine: Machine) -> Findings:
    """Do the tiles in a kernel's name tell the FLOPs that the hardware counts, and does NVML's tensor activity agree with its counters?

    Random products in FP16, BF16, TF32 and FP8 (multiples of 16 up to 4096) under Nsight Compute, which counts what the tensor
    cores execute; predicted are whole tiles and clusters. The paper has the closed form within 1000 FLOPs for nvjet kernels. Then
    NVML watches BF16 products of size 8192, whose tensor activity ncu has counted too. Clocks are left alone.
    """
    if getattr(machine, "ncu", None) is None:  # a machine may bring a tool in place of ncu, which runs no program
        needed_torch(machine)
    tool = ncu.tool(machine)
    names = _names(ncu.names(tool))
    metrics = [f"{name}.sum" for name in sorted({one for some in names.values() for one in some})]
    kernels, said = ncu.profiled(tool, [*metrics, ACTIVE], command(PRECISIONS))
    groups = _by_product(kernels)
    findings = Findings({"products": len(gemms()), "tool": tool.rpartition("/")[2], "load": machine.load_name})
    if len(groups) != len(gemms()):
        raise NotMeasured(f"ncu saw {len(groups)} products where {len(gemms())} were launched")
    pairs = list(zip(gemms(), groups, strict=True))
    findings.rows = [_row(gemm, group, names[gemm.precision]) for gemm, group in pairs if group]
    findings.answers = {**_answers(findings.rows), **_activity(machine, groups[0])}
    findings.notes, findings.wrong = list(_problems(said)), list(_wrong(findings.rows, findings.answers))
    return findings


def _names(known: Sequence[str]) -> dict[str, list[str]]:
    """Return by precision the counters to add up, as ncu calls them on this GPU; the usual ones where it gives no list."""
    return {precision: _counters(precision, known) or [usual] for precision, usual in USUAL.items()}


def _counters(precision: str, known: Sequence[str]) -> list[str]:
    """Return the counters that together count a precision's operations once: the plain one, else those by type of the result.

    >>> _counters("fp8", ["sm__ops_path_tensor_src_fp8", "sm__ops_path_tensor_src_fp8_sparsity_off"])
    ['sm__ops_path_tensor_src_fp8']
    >>> _counters("fp16", ["sm__ops_path_tensor_src_fp16_dst_fp16", "sm__ops_path_tensor_src_fp16_dst_fp32"])
    ['sm__ops_path_tensor_src_fp16_dst_fp16', 'sm__ops_path_tensor_src_fp16_dst_fp32']
    """
    stem = f"sm__ops_path_tensor_src_{precision}"
    if stem in known:
        return [stem]
    for end in (r"_dst_fp\d+", r"(_dst_fp\d+)?_sparsity_(on|off)"):
        alike = sorted(name for name in set(known) if re.fullmatch(stem + end, name))
        if alike:
            return alike
    return []


def _by_product(kernels: Sequence[ncu.Profiled]) -> list[list[ncu.Profiled]]:
    """Return the kernels of each product: those before its mark."""
    groups: list[list[ncu.Profiled]] = [[]]
    for one in kernels:
        if MARK in one.kernel and decode(one.kernel) is None:
            groups.append([])
        else:
            groups[-1].append(one)
    return groups[:-1]


def _row(gemm: PlannedGemm, kernels: Sequence[ncu.Profiled], names: Sequence[str]) -> dict[str, Any]:
    """Return one line of the table."""
    told = [one.metrics[f"{name}.sum"] for one in kernels for name in names if f"{name}.sum" in one.metrics]
    counted = round(sum(told)) if told else None
    covered = cover(gemm, [one.kernel for one in kernels])
    predicted = covered.executed if isinstance(covered, Cover) else None
    return {
        "precision": gemm.precision,
        "m": gemm.m,
        "n": gemm.n,
        "k": gemm.k,
        "kernel": " + ".join(one.kernel for one in kernels)[:200],
        "needed": gemm.flops,
        "counted": counted,
        "predicted": predicted,
        "difference": None if counted is None or predicted is None else counted - predicted,
        "unknown": "" if isinstance(covered, Cover) else covered,
    }


def _answers(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    differences = [one["difference"] for one in rows if one["difference"] is not None]
    return {
        "counted": sum(1 for one in rows if one["counted"] is not None),
        "predicted": len(differences),
        "largest_difference": max(differences, key=abs, default=None),
        "exact": sum(1 for one in differences if abs(one) <= NEAR),
    }


def _activity(machine: Machine, long: Sequence[ncu.Profiled]) -> dict[str, Any]:
    """Return tensor activity of the long product by both sources."""
    assert machine.load is not None, "the runner asks for a load"
    counted = [one.metrics[ACTIVE] for one in long if ACTIVE in one.metrics]
    try:
        with machine.load(LONG.m):
            told = mean(watched(machine, SECONDS, 1.0)[1:], "tensor_active")
    except NotMeasured:
        told = None
    return {"tensor_active_nvml": told, "tensor_active_ncu": max(counted) / 100 if counted else None}


def _problems(said: str) -> Iterator[str]:
    """Tell which products the program could not run, by what it printed."""
    lines = [line for line in said.splitlines() if line.startswith('{"problems"')]
    for number, problem in json.loads(lines[-1])["problems"].items() if lines else ():
        yield f"{gemms()[int(number)].words}: {problem}"


def _wrong(rows: Sequence[dict[str, Any]], answers: dict[str, Any]) -> Iterator[str]:
    off = [one for one in rows if one["difference"] is not None and abs(one["difference"]) > NEAR]
    if off:
        shown = "; ".join(f"{one['kernel']} on {one['m']} × {one['n']} × {one['k']} by {one['difference']:,}" for one in off[:3])
        yield f"{len(off)} kernels execute other FLOPs than their names tell: {shown}"
    both = answers["tensor_active_nvml"], answers["tensor_active_ncu"]
    if None not in both and abs(both[0] - both[1]) > APART:
        yield f"tensor activity is {both[0]:.3f} by NVML and {both[1]:.3f} by Nsight Compute"
