"""Text exposition: lines a second, beside prometheus_client's own parser in the same process.

    python benchmarks/exposition.py [--hosts 100] [--quick] [--json FILE]

The text is what dcgm-exporter writes: its default counters and the profiling fields that Ullage asks for, eight GPUs a
host, HELP and TYPE lines, long labels. Both parsers read the same text; ours also builds the table of samples.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from measure import Figure, Figures, parser, seconds
from ullage.problems import Problems
from ullage.sources.exposition import read_folder
from ullage.sources.rows.lines import ExpositionLines
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


def folder(pages: int) -> tuple[Path, str]:
    """Return a folder of `pages` scrapes of one host, 30 s apart, and the text of one."""
    page, path = text(1), Path(tempfile.mkdtemp())
    for number in range(pages):
        (path / f"{1786363200 + 30 * number}.prom").write_text(page)
    return path, page


def beside(what: str, lines: int, ours: Callable[[], object], theirs: Callable[[], object], target: float | None) -> tuple[Figure, ...]:
    """Return both rates, and how many times faster ours is."""
    rates = [lines / seconds(work) for work in (ours, theirs)]
    measured = Figure(f"{what}, {lines:,} lines", rates[0], "lines/s", {"prometheus_client": rates[1]})
    return measured, Figure(f"{what}, faster than prometheus_client", rates[0] / rates[1], "times", target=target)


def main() -> None:
    """Print figures for each kind of text: one host's page, a folder of them, and one page of many hosts."""
    options = parser(__doc__)
    options.add_argument("--hosts", type=int, default=100)
    asked = options.parse_args()
    hosts, target = (5, None) if asked.quick else (asked.hosts, 20)
    figures = Figures(asked.json)
    for count in (1, hosts):
        page = text(count)
        figures.add(
            *beside(
                f"one page of {count:,} host{'s' * (count > 1)}",
                page.count("\n"),
                lambda page=page: ExpositionLines("page", Options(), Problems()).batch(page.encode(), 1),
                lambda page=page: list(text_string_to_metric_families(page)),
                target,
            )
        )
    path, page = folder(2 * hosts)
    figures.add(
        *beside(
            f"a folder of {2 * hosts:,} pages",
            2 * hosts * page.count("\n"),
            lambda: list(read_folder(Place(str(path), path), Options(), Problems())),
            lambda: [list(text_string_to_metric_families(file.read_text())) for file in path.iterdir()],
            target,
        )
    )
    shutil.rmtree(path)


if __name__ == "__main__":
    main()
