"""What dcgm-exporter calls the fields of a sample: the names, units and help texts that dashboards and alerts are written for.

Source: dcgm-exporter's `etc/default-counters.csv` and `etc/dcp-metrics-included.csv`; new names: DCGM 4.6's `dcgm_fields.h`
and go-dcgm's base-unit fields. `ullage.sources.naming.names` reads these and many others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Name:
    """How the exporter calls a field: its factor from the SI unit, its decimals (0 or 6), the metric's type and help."""

    name: str
    factor: float
    decimals: int
    kind: str
    help: str


def _gauge(name: str, factor: float, decimals: int, words: str) -> Name:
    return Name(name, factor, decimals, "gauge", words)


def _counter(name: str, factor: float, words: str) -> Name:
    return Name(name, factor, 0, "counter", words)


_CYCLES = {
    "tensor_cycles": _counter("DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL", 1, "Cycles in which any tensor pipe was active."),
    "sm_cycles": _counter("DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL", 1, "SM cycles elapsed."),
    "sm_active_cycles": _counter("DCGM_FI_PROF_SM_CYCLES_ACTIVE_TOTAL", 1, "SM cycles with a resident warp."),
}
_HEALTH = {
    "xid": _gauge("DCGM_FI_DEV_XID_ERRORS", 1, 0, "Value of the last XID error encountered."),
    "ecc_uncorrected": _counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1, "Total number of double-bit volatile ECC errors."),
    "remapped_rows": _counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1, "Number of remapped rows for uncorrectable errors."),
    "remap_failed": _gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, 0, "Whether remapping of rows has failed."),
    "nvlink_replays": _counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 1, "Total number of NVLink retries."),
    "nvlink_recoveries": _counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 1, "Total number of NVLink recovery errors."),
}
OLD: dict[str, Name] = {
    "sm_clock": _gauge("DCGM_FI_DEV_SM_CLOCK", 1e-6, 0, "SM clock frequency (in MHz)."),
    "memory_clock": _gauge("DCGM_FI_DEV_MEM_CLOCK", 1e-6, 0, "Memory clock frequency (in MHz)."),
    "temperature": _gauge("DCGM_FI_DEV_GPU_TEMP", 1, 0, "GPU temperature (in C)."),
    "power": _gauge("DCGM_FI_DEV_POWER_USAGE", 1, 6, "Power draw (in W)."),
    "energy": _counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3, "Total energy consumption since boot (in mJ)."),
    "gpu_util": _gauge("DCGM_FI_DEV_GPU_UTIL", 100, 0, "GPU utilization (in %)."),
    "memory_used": _gauge("DCGM_FI_DEV_FB_USED", 2.0**-20, 0, "Framebuffer memory used (in MiB)."),
    "throttle": _gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1, 0, "Current clock event reasons."),
    "gr_active": _gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1, 6, "Ratio of time the graphics engine is active."),
    "sm_active": _gauge("DCGM_FI_PROF_SM_ACTIVE", 1, 6, "The ratio of cycles an SM has at least 1 warp assigned."),
    "tensor_active": _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1, 6, "Ratio of cycles the tensor (HMMA) pipe is active."),
    "dram_active": _gauge("DCGM_FI_PROF_DRAM_ACTIVE", 1, 6, "Ratio of cycles the device memory interface is active."),
    **_CYCLES,
    **_HEALTH,
}
NEW: dict[str, Name] = {
    "sm_clock": _gauge("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1, 0, "SM clock frequency (in Hz)."),
    "memory_clock": _gauge("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 1, 0, "Memory clock frequency (in Hz)."),
    "temperature": _gauge("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1, 0, "GPU temperature (in C)."),
    "power": _gauge("DCGM_FI_DEV_BOARD_POWER_WATTS", 1, 6, "Power draw (in W)."),
    "energy": _counter("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1, "Total energy consumption since boot (in J)."),
    "gpu_util": _gauge("DCGM_FI_DEV_GPU_UTIL_RATIO", 1, 6, "GPU utilization (ratio)."),
    "memory_used": OLD["memory_used"],  # DCGM 4.6 has no field in bytes for it
    "throttle": OLD["throttle"],
    "gr_active": _gauge("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1, 6, "Ratio of time the graphics engine is active."),
    "sm_active": _gauge("DCGM_FI_PROF_SM_UTIL_RATIO", 1, 6, "The ratio of cycles an SM has at least 1 warp assigned."),
    "tensor_active": _gauge("DCGM_FI_PROF_TENSOR_UTIL_RATIO", 1, 6, "Ratio of cycles the tensor (HMMA) pipe is active."),
    "dram_active": _gauge("DCGM_FI_PROF_DRAM_UTIL_RATIO", 1, 6, "Ratio of cycles the device memory interface is active."),
    **_CYCLES,
    **_HEALTH,
}
# Every field of a sample, by its old name.
EVERY: dict[str, Name] = {
    **OLD,
    "sm_occupancy": _gauge("DCGM_FI_PROF_SM_OCCUPANCY", 1, 6, "The fraction of resident warps on a multiprocessor."),
    "hmma_active": _gauge("DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", 1, 6, "Ratio of cycles the FP16, BF16 and FP8 tensor pipe is active."),
    "imma_active": _gauge("DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", 1, 6, "Ratio of cycles the integer tensor pipe is active."),
    "dfma_active": _gauge("DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE", 1, 6, "Ratio of cycles the FP64 tensor pipe is active."),
    "fp64_active": _gauge("DCGM_FI_PROF_PIPE_FP64_ACTIVE", 1, 6, "Ratio of cycles the FP64 pipe is active."),
    "fp32_active": _gauge("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 1, 6, "Ratio of cycles the FP32 pipe is active."),
    "fp16_active": _gauge("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 1, 6, "Ratio of cycles the FP16 pipe is active."),
    "pcie_tx": _gauge("DCGM_FI_PROF_PCIE_TX_BYTES", 1, 0, "Bytes sent over PCIe a second."),
    "pcie_rx": _gauge("DCGM_FI_PROF_PCIE_RX_BYTES", 1, 0, "Bytes received over PCIe a second."),
    "nvlink_tx": _gauge("DCGM_FI_PROF_NVLINK_TX_BYTES", 1, 0, "Bytes sent over NVLink a second."),
    "nvlink_rx": _gauge("DCGM_FI_PROF_NVLINK_RX_BYTES", 1, 0, "Bytes received over NVLink a second."),
}
# what the exporter's own list (etc/default-counters.csv) has switched on; the others have to be added
ON_BY_DEFAULT = frozenset(
    {
        *("tensor_active", "gr_active", "dram_active", "gpu_util", "sm_clock", "memory_clock"),
        *("power", "energy", "temperature", "memory_used", "pcie_tx", "pcie_rx"),
        *("xid", "remapped_rows", "remap_failed"),
    }
)
