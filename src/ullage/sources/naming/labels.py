"""Whose number it is: the labels of a series, as any exporter writes them, to the identity columns of a sample.

Used by every reader of labelled series (text exposition, the Prometheus API and its saved responses).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ullage.job_names import escaped_name
from ullage.problems import Problems

LONGEST = 4096  # characters of a label value that are kept

# Column -> labels that hold it, the most telling first. Sources: dcgm-exporter's render template, old and new;
# AMD device-metrics-exporter's metricslist; plazonic/nvidia_gpu_prometheus_exporter; OpenShift's `accelerator_*`
# rewriting. Prometheus's own `job` label is the name of the scrape job, never a job id, and is not read.
_LABELS: dict[str, tuple[str, ...]] = {
    "cluster": ("cluster", "cluster_name", "k8s_cluster", "k8s_cluster_name"),
    "host": ("Hostname", "hostname", "host", "node", "node_name", "nodename", "kubernetes_node", "k8s_node_name"),
    # AMD's series is the name on the market; its "model" is the number of the board, and says nothing unless it is all there is.
    "model": (
        *("modelName", "model_name", "model", "gpu_model", "gpu_name"),
        *("card_series", "market_name", "product_name", "name", "card_model"),
    ),
    "job": ("hpc_job", "job_id", "jobid", "jobId", "slurm_job_id", "slurm_jobid"),
    "user": ("job_user", "slurm_user", "userid", "user", "username"),
}
_DEVICES = ("UUID", "uuid", "gpu_uuid", "GPU_UUID", "serial_number")
_INDEXES = ("gpu", "gpu_id", "ordinal", "gpu_index", "index", "card", "minor_number", "device")
# AMD's boards by their number without its revision, where two public records of the driver agree on the name
_BOARDS = {"102-G30211": "AMD Instinct MI300X"}
_PODS: dict[str, tuple[str, ...]] = {
    "namespace": ("namespace", "pod_namespace", "k8s_namespace_name", "kubernetes_namespace"),
    "pod": ("pod", "pod_name", "k8s_pod_name", "kubernetes_pod_name"),
    "container": ("container", "container_name", "k8s_container_name"),
}
_NOTHING = {"", "<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>"}  # dcgm_structs.h, blank strings
_DIGITS = re.compile(r"(?:nvidia|card|renderD|gpu)?(\d{1,4})", re.ASCII)
# An idle GPU has no `exported_pod`, and what Prometheus then calls `pod` is the exporter's own (honorLabels: false).
_EXPORTER = re.compile(r"(dcgm|gpu|device|metrics)[-_](metrics[-_])?exporter")


def identity(labels: Mapping[str, str], problems: Problems | None = None, cluster: str | None = None) -> dict[str, str | int | None]:
    """Return a value for every identity column of a sample (`tables.IDENTITY`), None where the labels do not say.

    Empty values mean nothing. Where Prometheus renamed the exporter's labels to `exported_…`, the plain `pod`,
    `namespace` and `container` are the exporter's own and are ignored. Without a UUID the device is
    'cluster/host/index'; without a job id the job is 'namespace/pod'. `cluster` is what the user calls a cluster that
    the labels do not name. A value beyond 4,096 characters is cut, and counted in `problems`.

    >>> who = identity({"gpu": "0", "UUID": "GPU-1", "Hostname": "n1", "pod": "train-0", "namespace": "ml", "job": "dcgm"})
    >>> who["gpu"], who["index"], who["host"], who["job"], who["mig"]
    ('GPU-1', 0, 'n1', 'ml/train-0', None)
    """
    told = _told(labels, problems)
    index = _index(told)
    who: dict[str, str | int | None] = {column: _first(told, names) for column, names in _LABELS.items()}
    who["model"] = _BOARDS.get(told.get("card_model", "").rpartition("-")[0], who["model"])
    who["cluster"] = who["cluster"] or cluster
    who["host"] = who["host"] or _without_port(told.get("instance"))
    who.update(_pod(told))
    who["index"] = index
    who["gpu"] = _uuid(told) or (None if index is None else device_name(who["cluster"], who["host"], index))
    who["mig"] = _mig(told)
    if who["job"] is None and who["pod"] is not None:
        who["job"] = "/".join(str(part) for part in (who["namespace"], who["pod"]) if part is not None)
    for name in ("job", "user"):
        who[name] = None if who[name] is None else escaped_name(str(who[name]))
    return who


def _told(labels: Mapping[str, str], problems: Problems | None) -> dict[str, str]:
    """Return the labels that say something, each at a sane length."""
    told = {}
    for name, value in labels.items():
        if value in _NOTHING:
            continue
        if len(value) > LONGEST:
            value = value[:LONGEST]
            if problems is not None:
                problems.repair(f"label values longer than {LONGEST:,} characters were cut", where=f"label {name}")
        told[name] = value
    return told


def _first(told: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return the first label that is there; the exporter's own word (`exported_…`) before the scraper's."""
    for name in names:
        value = told.get(f"exported_{name}") or told.get(name)
        if value:
            return value
    return None


def _pod(told: Mapping[str, str]) -> dict[str, str | int | None]:
    exported = {column: _first(told, (f"exported_{name}" for name in names)) for column, names in _PODS.items()}
    if any(exported.values()):
        return dict(exported)
    plain = {column: _first(told, names) for column, names in _PODS.items()}
    if _EXPORTER.search(plain["pod"] or "") or _EXPORTER.search(plain["container"] or ""):
        return dict.fromkeys(_PODS)
    return dict(plain)


def _index(told: Mapping[str, str]) -> int | None:
    for name in _INDEXES:
        number = _DIGITS.fullmatch(told.get(name, ""))
        if number:
            return int(number[1])
    return None


def _uuid(told: Mapping[str, str]) -> str | None:
    named = _first(told, _DEVICES)
    return told["gpu"] if named is None and told.get("gpu", "").startswith(("GPU-", "MIG-")) else named


def device_name(*place: str | int | None) -> str:
    """Return the name of a device without a UUID, from its cluster, its host and its number there, as far as they are known.

    >>> device_name("east", "n0", 3), device_name(None, "n0", 3)
    ('east/n0/3', 'n0/3')
    """
    return "/".join(str(part) for part in place if part is not None)


def _mig(told: Mapping[str, str]) -> str | None:
    """Return the slice as 'profile/instance id': NVIDIA's MIG, or AMD's compute partition where it is not the whole (SPX)."""
    profile, instance = told.get("GPU_I_PROFILE"), told.get("GPU_I_ID")
    partition = told.get("gpu_compute_partition_type", "").lower()
    if profile is None and instance is None and partition not in ("", "spx", "none"):
        profile, instance = partition, told.get("gpu_partition_id")
    if profile is None and instance is None:
        return None
    return f"{profile or ''}/{instance or ''}"


def _without_port(instance: str | None) -> str | None:
    """Return the host of an address as Prometheus writes it.

    >>> _without_port("node-17:9400"), _without_port("[fe80::1]:9400"), _without_port("http://n1:9400/metrics")
    ('node-17', 'fe80::1', 'n1')
    """
    if instance is None:
        return None
    address = instance.split("://", 1)[-1].split("/", 1)[0]
    if address.startswith("["):
        return address[1:].split("]", 1)[0]
    return address.rsplit(":", 1)[0] if address.count(":") == 1 else address


_STRICT = re.compile(rb'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*(?:,|$)', re.DOTALL)
_LOOSE = re.compile(rb'(?:^|"\s*,)\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def label_values(text: bytes) -> dict[str, str] | None:
    r"""Return the labels between two braces, or None when they can't be read. Of a label that stands twice the first counts.

    Text that follows the format is unescaped by it. dcgm-exporter escapes nothing (its template prints labels as they
    are), so a value there ends at a quote that is followed by the next label or by the end.

    >>> label_values(rb'gpu="0", pod="a \"b\"\\c",')
    {'gpu': '0', 'pod': 'a "b"\\c'}
    >>> label_values(b'gpu="0",pod="say "hi", {you}"')
    {'gpu': '0', 'pod': 'say "hi", {you}'}
    """
    if not text.strip():
        return {}
    labels: dict[str, str] = {}
    end = 0
    while end < len(text):
        match = _STRICT.match(text, end)
        if match is None:
            return _loose_labels(text)
        value = match[2].decode(errors="replace")
        labels.setdefault(match[1].decode(), _ESCAPE.sub(_unescaped, value) if "\\" in value else value)
        end = match.end()
    return labels


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", '"': '"', "\\": "\\"}.get(match[1], match[0])


def _loose_labels(text: bytes) -> dict[str, str] | None:
    text = text.rstrip().removesuffix(b",").rstrip()
    starts = list(_LOOSE.finditer(text))
    if not starts or starts[0].start() or not text.endswith(b'"') or len(text) <= starts[-1].end():
        return None
    labels: dict[str, str] = {}
    for this, following in zip(starts, [*starts[1:], None], strict=True):
        end = following.start() if following else len(text) - 1
        labels.setdefault(this[1].decode(), text[this.end() : end].decode(errors="replace"))
    return labels
