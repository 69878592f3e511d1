"""Text exposition: lines a second, beside prometheus_client's own parser in the same process.

    python benchmarks/exposition.py [hosts]

The text is what dcgm-exporter writes: its default counters and the profiling fields that Ullage asks for, eight GPUs a
host, HELP and TYPE lines, long labels. Both parsers read the same text; ours also builds the table of samples.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ullage.problems import Problems
from ullage.sources.exposition import read_folder
from ullage.sources.lines import Lines
from ullage.sources.source import Options, Place

FIELDS = {
    "DCGM_FI_DEV_SM_CLOCK": "1755",
    "DCGM_FI_DEV_MEM_CLOCK": "2619",
    "DCGM_FI_DEV_MEMORY_TEMP": "58",
    "DCGM_FI_DEV_GPU_TEMP": "51",
    "DCGM_FI_DEV_POWER_USAGE": "612.341000",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "1832763450123",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "0",
    "DCGM_FI_DEV_GPU_UTIL": "98",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "44",
    "DCGM_FI_DEV_ENC_UTIL": "0",
    "DCGM_FI_DEV_DEC_UTIL": "0",
    "DCGM_FI_DEV_XID_ERRORS": "0",
    "DCGM_FI_DEV_FB_FREE": "12032",
    "DCGM_FI_DEV_FB_USED": "69012",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "0",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "0",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "0",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "0",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "0",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.995630",
    "DCGM_FI_PROF_SM_ACTIVE": "0.871203",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "0.529260",
    "DCGM_FI_PROF_DRAM_ACTIVE": "0.402113",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "12345678",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "87654321",
}


def text(hosts: int) -> str:
    """Return one exposition of `hosts` hosts with eight GPUs each, as a federating server would give it."""
    lines = []
    for name, value in FIELDS.items():
        lines += [f"# HELP {name} {name.lower().replace('_', ' ')} (in some unit).", f"# TYPE {name} gauge"]
        for host in range(hosts):
            for gpu in range(8):
                lines.append(
                    f'{name}{{gpu="{gpu}",UUID="GPU-{host:08x}-a8c2-4b1e-9d77-{gpu:012x}",pci_bus_id="00000000:{gpu:02X}:00.0",'
                    f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="node-{host:04}",DCGM_FI_DRIVER_VERSION="570.1",'
                    f'container="train",namespace="vision",pod="train-{host // 4}-worker-{host % 4}",'
                    f'hpc_job="{100000 + host // 4}"}} {value}'
                )
    return "\n".join(lines) + "\n"


def rate(work: Callable[[], object], lines: int) -> float:
    """Return lines a second, the best of three runs."""
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return lines / best


def folder(pages: int) -> tuple[Path, str]:
    """Return a folder of `pages` scrapes of one host, 30 s apart, and the text of one."""
    page, path = text(1), Path(tempfile.mkdtemp())
    for number in range(pages):
        (path / f"{1786363200 + 30 * number}.prom").write_text(page)
    return path, page


def report(what: str, lines: int, ours: float, theirs: float) -> None:
    """Print both rates and their ratio."""
    print(f"{what}, {lines:,} lines: ullage {ours:,.0f} lines/s, prometheus_client {theirs:,.0f} lines/s, {ours / theirs:.1f} times")


def main() -> None:
    """Print one line for each kind of text: one host's page, a folder of them, and one page of many hosts."""
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for count in (1, hosts):
        page = text(count)
        lines, data = page.count("\n"), page.encode()
        ours = rate(lambda: Lines("page", Options(), Problems()).batch(data, 1), lines)  # noqa: B023
        theirs = rate(lambda: list(text_string_to_metric_families(page)), lines)  # noqa: B023
        report(f"one page of {count:,} hosts", lines, ours, theirs)
    path, page = folder(2 * hosts)
    lines = 2 * hosts * page.count("\n")
    ours = rate(lambda: list(read_folder(Place(str(path), path), Options(), Problems())), lines)
    theirs = rate(lambda: [list(text_string_to_metric_families(file.read_text())) for file in path.iterdir()], lines)
    report(f"a folder of {2 * hosts:,} pages", lines, ours, theirs)
    shutil.rmtree(path)


if __name__ == "__main__":
    main()
