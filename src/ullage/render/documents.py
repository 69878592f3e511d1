"""The kinds of documents that Ullage prints as JSON, and the schema of each, made from the types that declare them."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from ullage.errors import UllageError, did_you_mean, harmless
from ullage.views.document import schema_name

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# kind -> module: type
KINDS = {
    "architectures": "render.architectures:ArchitecturesDocument",
    "audit-counter": "render.counter:CounterAuditDocument",
    "audit-fleet": "render.audit_fleet:FleetAuditDocument",
    "audit-mfu": "render.audit:AuditDocument",
    "audit-mistakes": "render.audit:MistakesDocument",
    "audit-peaks": "render.peaks:PeaksAuditDocument",
    "bench": "render.bench:BenchReportDocument",
    "bench-drift": "render.drift:DriftDocument",
    "bench-gemm-ofu": "render.gemm_ofu:GemmOfuDocument",
    "bench-results": "render.bench:BenchResultsDocument",
    "benches": "render.bench:BenchesDocument",
    "cupti-check": "render.machine_check:CuptiCheckDocument",
    "cupti-chips": "render.counters:CuptiChipsDocument",
    "cupti-describe": "render.counters:CuptiDescribeDocument",
    "cupti-diff": "render.counter_changes:CuptiDiffDocument",
    "cupti-map": "render.old_counters:CuptiMapDocument",
    "cupti-metrics": "render.counters:CuptiMetricsDocument",
    "cupti-plan": "render.counters:CuptiPlanDocument",
    "dashboards": "render.dashboards:DashboardsDocument",
    "doctor": "render.doctor:DoctorDocument",
    "fields": "render.metrics:FieldsDocument",
    "fleet": "render.fleet_document:FleetDocument",
    "fleet-map": "render.fleet_map:FleetMapDocument",
    "flops": "render.flops:FlopsDocument",
    "flops-certificate": "render.certified:FlopsCertificateDocument",
    "flops-traced": "render.derived:FlopsTracedDocument",
    "gemm": "render.gemm:GemmDocument",
    "gemm-sweep": "render.gemm_sweep:GemmSweepDocument",
    "gpus": "render.gpus:GpusDocument",
    "job": "render.job:JobDocument",
    "job-setup": "render.job_setup:JobSetupDocument",
    "kernel-counters": "render.kernel_counters:KernelCountersDocument",
    "kernel-flops": "render.kernel_flops:KernelFlopsDocument",
    "mfu-course": "render.mfu_course:MfuCourseDocument",
    "metrics": "render.metrics:MetricsDocument",
    "process-tree": "render.rank_trees:ProcessTreeDocument",
    "reading": "render.devices:ReadingDocument",
    "rules": "render.rules:RulesDocument",
    "run": "render.run:RunDocument",
    "sample": "render.sample:SampleDocument",
    "sass": "render.sass:SassDocument",
    "sass-table": "render.sass_tables:SassTableDocument",
    "simulate": "render.simulated:SimulateDocument",
    "simulate-job": "render.simulated:SimulateJobDocument",
    "simulate-trace": "render.simulated:SimulateTraceDocument",
    "stall-reasons": "render.stalls:ReasonsDocument",
    "stalls": "render.stalls:StallsDocument",
    "store": "render.store:StoreDocument",
    "store-upkeep": "render.store:StoreUpkeepDocument",
    "top": "render.top:TopDocument",
    "top-run": "render.rank_trees:TopRunDocument",
    "trace": "render.trace_json:TraceDocument",
    "trace-compare": "render.change:TraceCompareDocument",
    "trace-gemms": "render.gemms:GemmsDocument",
    "trace-scaling": "render.scaling:TraceScalingDocument",
    "trace-stragglers": "reports.trace.stragglers:StragglerReport",
    "watch": "render.watch:WatchDocument",
    "waterfall": "render.waterfall:WaterfallDocument",
}


def declared(kind: str) -> type[msgspec.Struct]:
    """Return the type that declares the documents of a kind. Raises UllageError for a kind that there is not."""
    if kind not in KINDS:
        raise UllageError(f"no document is of the kind '{harmless(kind, 60)}'", did_you_mean(kind, KINDS, "ullage schema"))
    module, name = KINDS[kind].split(":")
    found: type[msgspec.Struct] = getattr(importlib.import_module(f"ullage.{module}"), name)
    return found


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind's documents: what has no `required` may be missing, and what is not described may come."""
    made = msgspec.json.schema(declared(kind))
    parts = made["$defs"]
    whole = parts.pop(made["$ref"].rpartition("/")[2])
    head = {"schema": {"const": schema_name(kind)}, "version": {"type": "string", "description": "of the Ullage that made it"}}
    described = {"title": schema_name(kind), "description": whole["description"], "type": "object"}
    keys = {"properties": head | whole["properties"], "required": [*head, *whole["required"]]}
    return {"$schema": DIALECT, **described, **keys, **({"$defs": parts} if parts else {})}


def broken_promises(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what a schema no longer holds of what it held before, for which documents need a new number: keys and types that went."""
    return [*_broken(before, after, before.get("$defs", {}), after.get("$defs", {}), "", frozenset())]


def _broken(before: Any, after: Any, known: Any, now: Any, place: str, seen: frozenset[str]) -> list[str]:
    name = before.get("$ref", "").rpartition("/")[2]
    if name:
        if name in seen:
            return []
        before, seen = known[name], seen | {name}
    after = now[after["$ref"].rpartition("/")[2]] if "$ref" in after else after
    lost = [f"{place or 'the document'}: {sorted(_types(after) - _types(before))} came"] if _types(after) - _types(before) else []
    for key, one in before.get("properties", {}).items():
        inner = f"{place}.{key}" if place else key
        if key not in after.get("properties", {}):
            lost.append(f"{inner} went")
            continue
        if key in before.get("required", ()) and key not in after.get("required", ()):
            lost.append(f"{inner} may be missing")
        lost += _broken(one, after["properties"][key], known, now, inner, seen)
    for word in ("items", "additionalProperties"):
        if isinstance(before.get(word), dict) and isinstance(after.get(word), dict):
            lost += _broken(before[word], after[word], known, now, f"{place}[]", seen)
    for one, other in zip(_objects(before), _objects(after), strict=False):
        lost += _broken(one, other, known, now, place, seen)
    return lost


def _types(found: dict[str, Any]) -> set[str]:
    """Return the types that a value may have: one that comes is one that no reader expects."""
    if "anyOf" in found:
        return {word for one in found["anyOf"] for word in _types(one)}
    kind = "object" if "$ref" in found else found.get("type")
    return set() if kind is None else {"number", "integer"} if kind == "number" else {kind}  # every integer is a number


def _objects(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in found.get("anyOf", ()) if "$ref" in one or "properties" in one or "items" in one]
