"""Print the page on the public trace files from the files themselves: `python docs/trace_files.py FOLDER > docs/trace-files.md`.

FOLDER holds kineto/, nsys/, talp/ and paraver/. The files are other people's and are not in the repository.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from click.testing import CliRunner

import ullage
from ullage.cli import cli
from ullage.metrics.tree import Node
from ullage.reports.trace.trace import TraceReport
from ullage.views.numbers import UNKNOWN, factor, percent
from ullage.views.times import seconds

NOTE = "<!-- printed by docs/trace_files.py from public trace files: change that, not this page -->"
INTRODUCTION = """# What public trace files give

Trace files of all four formats from public repositories under free licences, read by `ullage trace`. They are not in this
repository: they are other people's, and stay where they are. To repeat the page, put them into one folder with a subfolder for
each format, and run

```
python docs/trace_files.py FOLDER > docs/trace-files.md
```

`tests/traces/test_trace_files.py` computes every number of the PyTorch and Nsight Systems files a second time, without Ullage's
readers and sums: plain `json` and `sqlite3`, and a sweep over the edges of all intervals. Of each file the times of every
device and process, of each region and of each profiler step are equal to the nanosecond.

PE is parallel efficiency, LB load balance, CE communication efficiency, OE orchestration efficiency; see
[efficiency-trees.md](efficiency-trees.md). Where an efficiency is known only between bounds that are more than 1 % apart, they
are given too: some profilers count whole microseconds, some lost records. Elapsed time is from the first to the last of GPU
activity, GPU API call, CPU operator and MPI, so it holds start-up where that was recorded.
"""
ORIGINS = {
    "kineto": """`hta_*` come from the tests of HolisticTraceAnalysis (facebookresearch, commit f4d0062c, MIT licence, Meta), `tracelens_*`
from those of TraceLens (AMD-AGI, commit 171dd747, MIT licence, AMD). All in `ai` mode: collectives apart.""",
    "nsys": """`nsysai_*` come from nsys-ai (GindaChen, commit ab196ea2, MIT; the `healthy_*` are made, not recorded), `pipit_*` from Pipit
(hpcgroup, MIT), `extrap_*` from Extra-P (TU Darmstadt, BSD 3-clause). They span the exporter's schema generations since
2020. The one with NCCL was exported without the binary payloads of NVTX, which tell the bytes and communicators of its operations; their
layout is that which nsys-ai found in exports of 2026, tried on databases that the tests write.""",
    "talp": """Test data of talp-pages in DLB (Barcelona Supercomputing Center, commit 9d67ac94, GPL 3.0). `talp.*` are real runs of MPI and
OpenMP on 224 CPUs, `unit_dlb_3_6_0` is one with a GPU; most others are made by hand or edited, which shows: their printed
efficiencies do not follow from their own raw times. *Agree* counts those that do; *differ* those where TALP's definition is
another one; *contradict* what no definition explains.""",
    "paraver": """EPOCH, a plasma code, on 1 to 16 MPI processes of one node, recorded by Extrae with hardware counters: an example of PyPOP
(NAG, commit 830913dd, BSD 3-clause-clear).""",
}
SIZES = """Four sizes of one problem on the same GPU. As the problem grows, *kernel-time scaling* is by how much the work does, and the
device's parallel efficiency rises because start-up, which is the same each time, weighs less.
"""
# What was recorded, where the file itself doesn't say it in a word.
ABOUT = {
    "hta_a100_alexnet": "AlexNet forward, start-up recorded",
    "hta_a100_cupti_range_profiler": "the same under CUPTI's range profiler: no kernels recorded",
    "hta_a100_rank0of16_neg_queue": "recommendation model, training, rank 0 of 16",
    "hta_a100_rank0of2_nccl_data": "convolutional network, DDP training, rank 0 of 2",
    "hta_a100_simple_add": "AlexNet forward, start-up recorded",
    "hta_cpuonly_no_distributedInfo": "recommendation model, CPU activities only",
    "hta_cpuonly_no_rank": "the same, without a rank",
    "hta_mtia_rank0": "recommendation model, training on Meta's accelerator",
    "hta_v100_rank1of2_df_index_resolver": "DDP training, many small kernels, rank 1 of 2",
    "hta_v100_rank1of2_trace_diff_test": "recommendation model, training, rank 1 of 2",
    "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005": "Qwen1.5 0.5B, forward",
    "tracelens_h100_gaunernst_bert-small-uncased__1016001": "BERT small, forward: too small for the GPU",
    "tracelens_h100_google_owlv2-large-patch14-ensemble__1016001": "OWLv2 large: the GPU waits for the data loader",
    "tracelens_mi210_gpu_only": "convolutional network, training",
    "tracelens_mi300_Qwen_Qwen1.5-0.5B-Chat__1016005": "Qwen1.5 0.5B, forward",
    "tracelens_mi300_facebook_timesformer-base-finetuned-k400__1016002": "TimeSformer: one input is prepared, then one forward",
    "tracelens_mi300_gaunernst_bert-small-uncased__1016001": "BERT small, forward: too small for the GPU",
    "tracelens_mi300_google_owlv2-large-patch14-ensemble__1016001": "OWLv2 large: the GPU waits for the data loader",
    "tracelens_mi300_torch_compile_triton": "a compiled transformer block",
    "tracelens_mi300_vllm_decode_hipgraph": "vLLM, one decoding step as HIP graph",
    "tracelens_mi300_xdit_sd35_rank0": "Stable Diffusion 3.5 with xDiT, rank 0",
    "extrap_con_kernel": "kernels side by side on several streams",
    "extrap_concurrent_s1": "streams, copies and phases, size 1",
    "extrap_concurrent_s2": "the same, size 2",
    "extrap_concurrent_s4": "the same, size 4",
    "extrap_concurrent_s16": "the same, size 16",
    "extrap_exgpu_s1000": "vector operations: start-up outweighs all",
    "nsysai_healthy_1pct": "made: gaps of 1 %",
    "nsysai_healthy_judged_1pct": "made: gaps of 1 %, longer kernels",
    "nsysai_mfu_2gpu_before": "a transformer with FSDP, all-to-all between two GPUs",
    "nsysai_mock": "two small kernels",
    "pipit_cloverleaf_cuda_perlmutter": "CloverLeaf, start-up recorded",
}
GPUS = {"a100": "A100", "v100": "V100", "h100": "H100", "mi210": "MI210", "mi300": "MI300X", "mtia": "MTIA", "cpuonly": "none"}
CAUSES = {
    "useful": "host code",
    "offload": "GPU API",
    "sync": "waiting for a device",
    "communication": "MPI",
    "off": "descheduled",
    "launched": "launched, not begun",
    "unknown": "not known",
}


def page(folder: Path) -> str:
    """Return the whole page."""
    parts = [NOTE + "\n" + INTRODUCTION]
    parts += [f"## PyTorch profiles (Kineto JSON)\n\n{ORIGINS['kineto']}\n", traces(sorted(folder.glob("kineto/*.json*")))]
    parts += [f"## Nsight Systems (SQLite)\n\n{ORIGINS['nsys']}\n", traces(sorted(folder.glob("nsys/*.sqlite"), key=_natural))]
    parts += [
        SIZES,
        scaling(folder / "nsys", [f"extrap_concurrent_s{n}.sqlite" for n in (1, 2, 4, 16)]),
    ]
    parts += [f"## TALP JSON\n\n{ORIGINS['talp']}\n", *talp(sorted(folder.glob("talp/*.json")))]
    parts += [f"## Paraver\n\n{ORIGINS['paraver']}\n", paraver(sorted(folder.glob("paraver/*.prv.gz"), key=_natural))]
    parts += [scaling(folder / "paraver", [f"epoch_{n}proc.prv.gz" for n in (1, 2, 4, 8, 16)])]
    return "\n".join(parts).rstrip() + "\n"


def called(path: Path) -> str:
    """Return how the page calls a file."""
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return what orders files by the numbers in their names."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.name)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; all columns after the first two stand to the right."""
    align = ["---", "---", *("--:" for _ in head[2:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, align, *rows)) + "\n"


def traces(paths: Sequence[Path]) -> str:
    """Return the table of files that hold events."""
    head = (
        "file",
        "what",
        "GPU",
        "clock or schema",
        "elapsed",
        "host PE",
        "device PE",
        "LB",
        "CE",
        "OE",
        "idle: what the host did",
        "to note",
    )
    return table(head, [row(path) for path in paths])


def row(path: Path) -> list[str]:
    """Return a file's row."""
    report = ullage.read_trace(str(path)).report()
    whole = report.whole
    device = [value(whole.device, name) for name in ("device_load_balance", "device_communication_efficiency", "orchestration_efficiency")]
    return [
        f"`{called(path)}`",
        ABOUT.get(called(path), UNKNOWN),
        gpu(path, report),
        written(path, report),
        seconds(whole.elapsed),
        value(whole.host, "host_parallel_efficiency"),
        value(whole.device, "device_parallel_efficiency"),
        *device,
        idle(report),
        remarks(report),
    ]


def value(tree: Node | None, metric: str) -> str:
    """Return an efficiency, with its bounds where they are apart."""
    node = tree.find(metric) if tree else None
    if node is None or node.value is None or node.low is None or node.high is None:
        return UNKNOWN
    shown = percent(node.value) if node.value < 0.005 else factor(node.value)
    if not node.certain:
        return f"? ({factor(node.low)} to {factor(node.high)})"
    return shown if node.high - node.low <= 0.01 else f"{shown} ({factor(node.low)} to {factor(node.high)})"


def gpu(path: Path, report: TraceReport) -> str:
    """Return the device's model as the file says it, else as the file's name does."""
    names = sorted({d.name for r in ([] if report.run is None else report.run.captures) for d in r.recording.devices.values() if d.name})
    told = next((model for word, model in GPUS.items() if word in path.name), UNKNOWN)
    models = [re.sub(r"^(NVIDIA|Tesla|AMD|Instinct)\s+|^(NVIDIA|AMD)\s+(Instinct\s+)?", "", name) for name in names]
    count = len(report.whole.device_parts)
    model = " ".join(dict.fromkeys(models)) or told
    return model if count < 2 else f"{count} GPUs" if model == UNKNOWN else f"{count} × {model}"


def written(path: Path, report: TraceReport) -> str:
    """Return how a file was written: the step of its clock, or the version of its schema."""
    assert report.run is not None
    if path.suffix != ".sqlite":
        return "whole µs" if report.run.captures[0].recording.resolution == 1000 else "ns"
    return schema(path)


def schema(path: Path) -> str:
    """Return the version of a database's schema, as the exporter wrote it down."""
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda text: text.decode(errors="replace")
    try:
        for name in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone():
                said = dict(database.execute(f"SELECT name, value FROM {name}"))
                return f"schema {said.get('EXPORT_SCHEMA_VERSION', 'without version')}"
        return "schema without version"
    finally:
        database.close()


def idle(report: TraceReport) -> str:
    """Return the two main reasons for which the devices idled."""
    if report.idle is None or not report.idle.total:
        return UNKNOWN
    ranked = sorted(((ns / report.idle.total, cause) for cause, ns in report.idle.causes.items()), reverse=True)
    return ", ".join(f"{CAUSES[cause]} {percent(share)}" for share, cause in ranked[:2] if share >= 0.01)


def remarks(report: TraceReport) -> str:
    """Return what there is to note: what is missing, what overlaps, what was matched."""
    return "; ".join(_remarks(report)) or UNKNOWN


def _remarks(report: TraceReport) -> Iterator[str]:
    if report.partial:
        yield "partial"
    parts = report.whole.device_parts
    if not parts:
        yield "no device tree"
    unknown, lost = sum(p.unknown for p in parts), sum(p.idle for p in parts)
    if unknown:
        yield f"{percent(unknown / lost, 1)} of idle time in doubt"
    if report.kernels is not None and report.kernels.overlap_all.collective:
        yield f"{percent(report.kernels.overlap_all.collective_hidden)} of collectives hidden"
    busy = sum(p.kernel + p.collective for p in parts)
    if report.kernels is not None and busy and report.kernels.kernel_time > 1.01 * busy:
        yield f"{report.kernels.kernel_time / busy:.2f} kernels at a time"
    if report.late is not None:
        yield f"{report.late.collectives} collectives matched across ranks"


def talp(paths: Sequence[Path]) -> Iterator[str]:
    """Return the table of TALP files, and that of what contradicts itself in them."""
    rows: list[list[str]] = []
    wrong: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        report = ullage.read_trace(str(path)).report()
        whole, restated = report.whole, report.restated
        assert whole.host_totals is not None
        contradictions = restated.contradictions if restated else ()
        rows.append(
            [
                f"`{called(path)}`",
                report.source.removeprefix("TALP "),
                f"{whole.host_totals.processes:,}",
                str(whole.device_totals.devices if whole.device_totals else 0),
                str(1 + len(report.regions)),
                seconds(whole.elapsed),
                value(whole.host, "host_parallel_efficiency"),
                value(whole.device, "device_parallel_efficiency"),
                str(restated.compared - len(restated.rows)) if restated else UNKNOWN,
                str(len(restated.rows) - len(contradictions)) if restated else UNKNOWN,
                str(len(contradictions)),
            ]
        )
        for found in contradictions:
            wrong.setdefault((f"`{found.key}`", f"{found.stated:.2f}", factor(found.recomputed)), []).append(f"`{called(path)}`")
    head = ("file", "version", "CPUs", "GPUs", "regions", "elapsed", "host PE", "device PE", "agree", "differ", "contradict")
    yield table(head, rows)
    yield "What contradicts the raw times:\n"
    told = sorted(([key[0], ", ".join(files), *key[1:]] for key, files in wrong.items()), key=lambda cells: (cells[0], cells[1]))
    yield table(("efficiency", "files", "printed", "by its times"), told)


def paraver(paths: Sequence[Path]) -> str:
    """Return the table of Paraver traces."""
    rows = []
    for path in paths:
        report = ullage.read_trace(str(path)).report()
        whole = report.whole
        assert whole.host_totals is not None
        tree = [value(whole.host, n) for n in ("host_parallel_efficiency", "host_load_balance", "host_communication_efficiency")]
        late = f"{report.late.collectives} collectives matched" if report.late else UNKNOWN
        rows.append([f"`{called(path)}`", f"{whole.host_totals.processes:,}", seconds(whole.elapsed), *tree, late])
    return table(("file", "processes", "elapsed", "PE", "LB", "CE", "to note"), rows)


def scaling(folder: Path, names: Sequence[str]) -> str:
    """Return the scaling table of several files, with the command that prints it."""
    words = ["trace", "scaling", *(str(folder / name) for name in names)]
    result = CliRunner(env={"COLUMNS": "110"}).invoke(cli, words, catch_exceptions=False)
    return f"```console\n$ ullage trace scaling {' '.join(names)}\n{result.stdout.rstrip()}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
