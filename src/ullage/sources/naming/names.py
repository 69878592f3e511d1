"""What exporters call a field: every known name, its unit, and the grammar by which a renamed one is still understood.

Sources, read in November 2026: NVIDIA/DCGM `dcgm_fields.h` and `dcgm_fields.py` up to 4.7 (old names, the names of the
4.6 grammar with unit suffix, profiling totals 1084-1096, base-unit fields 1600-1649), dcgm-exporter's counter lists,
ROCm/device-metrics-exporter `metricslist.md`, ROCm/omnistat's metric reference, plazonic/nvidia_gpu_prometheus_exporter
`main.go`, dynolog `DcgmGroupInfo.cpp`, and the recording rules by which OpenShift makes its `accelerator_*`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ullage.field import FIELDS


@dataclass(frozen=True)
class Alias:
    """A name that some exporter uses, the field it means, and the unit its name promises (a key of `units.TO_SI`).

    `parts` says that a device may have several such readings at once, of its dies, whose mean is the device's. A name that means the field
    only together with a `label` does so with one of its `values`, in capitals or not.
    """

    name: str
    field: str
    unit: str
    parts: bool = False
    label: str = ""
    values: tuple[str, ...] = ()

    @property
    def matchers(self) -> str:
        """The matchers of PromQL that choose the series with this meaning; "" for all of this name."""
        return f'{self.label}=~"(?i)({"|".join(self.values)})"' if self.label else ""


# field -> unit -> names
NAMES: dict[str, dict[str, str]] = {
    "tensor_active": {
        # Since DCGM 4.6 the name says RATIO; gpu_prof_… counts AMD's matrix (MFMA) pipes.
        "1": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE DCGM_FI_PROF_TENSOR_UTIL_RATIO tensorcore_active",
        "%": "gpu_prof_tensor_active_percent nvidia_gpu_any_tensor_util_percent",
    },
    "hmma_active": {"1": "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE DCGM_FI_PROF_HMMA_UTIL_RATIO DCGM_FI_PROF_TENSOR_HMMA_UTIL_RATIO"},
    "imma_active": {"1": "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE DCGM_FI_PROF_IMMA_UTIL_RATIO DCGM_FI_PROF_TENSOR_IMMA_UTIL_RATIO"},
    "dfma_active": {"1": "DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE DCGM_FI_PROF_DFMA_UTIL_RATIO DCGM_FI_PROF_TENSOR_DFMA_UTIL_RATIO"},
    "sm_active": {
        "1": "DCGM_FI_PROF_SM_ACTIVE DCGM_FI_PROF_SM_UTIL_RATIO sm_active_ratio",
        "%": "gpu_prof_sm_active nvidia_gpu_sm_util_percent",
    },
    "sm_occupancy": {
        "1": "DCGM_FI_PROF_SM_OCCUPANCY DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
        "%": "gpu_prof_occupancy_percent nvidia_gpu_sm_occupancy_percent",
    },
    "gr_active": {
        "1": "DCGM_FI_PROF_GR_ENGINE_ACTIVE DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO graphics_engine_active_ratio",
        "%": "gpu_prof_gui_util_percent nvidia_gpu_graphics_util_percent",
    },
    "dram_active": {
        "1": "DCGM_FI_PROF_DRAM_ACTIVE DCGM_FI_PROF_DRAM_UTIL_RATIO hbm_mem_bw_util",
        "%": "gpu_umc_activity nvidia_gpu_dram_bw_util_percent",
    },
    "fp64_active": {"1": "DCGM_FI_PROF_PIPE_FP64_ACTIVE DCGM_FI_PROF_FP64_UTIL_RATIO", "%": "nvidia_gpu_fp64_util_percent"},
    "fp32_active": {"1": "DCGM_FI_PROF_PIPE_FP32_ACTIVE DCGM_FI_PROF_FP32_UTIL_RATIO", "%": "nvidia_gpu_fp32_util_percent"},
    "fp16_active": {"1": "DCGM_FI_PROF_PIPE_FP16_ACTIVE DCGM_FI_PROF_FP16_UTIL_RATIO", "%": "nvidia_gpu_fp16_util_percent"},
    "gpu_util": {
        # DCGM 4.6.0 had GPU_UTIL_RATIO as another name of field 203 (percent), 4.7 made it field 1613 (a ratio).
        "1": "DCGM_FI_DEV_GPU_UTIL_RATIO nvidia_smi_utilization_gpu_ratio",
        "%": "DCGM_FI_DEV_GPU_UTIL dcgm_gpu_utilization gpu_device_utilization accelerator_gpu_utilization "
        "nvidia_gpu_duty_cycle gpu_gfx_activity rocm_utilization_percentage",
    },
    "sm_clock": {
        "MHz": "DCGM_FI_DEV_SM_CLOCK dcgm_sm_clock gpu_frequency_mhz rocm_sclk_clock_mhz",
        "Hz": "DCGM_FI_DEV_SM_CLOCK_HERTZ accelerator_sm_clock_hertz nvidia_smi_clocks_current_sm_clock_hz",
    },
    "memory_clock": {
        "MHz": "DCGM_FI_DEV_MEM_CLOCK dcgm_memory_clock rocm_mclk_clock_mhz",
        "Hz": "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ accelerator_memory_clock_hertz nvidia_smi_clocks_current_memory_clock_hz",
    },
    "power": {
        "W": "DCGM_FI_DEV_POWER_USAGE DCGM_FI_DEV_BOARD_POWER_WATTS DCGM_FI_DEV_POWER_USAGE_INSTANT DCGM_FI_DEV_BOARD_POWER_RAW_WATTS "
        "dcgm_power_usage gpu_power_draw accelerator_power_usage_watts gpu_package_power gpu_power_usage gpu_average_package_power "
        "rocm_average_socket_power_watts nvidia_smi_power_draw_watts",
        "mW": "nvidia_gpu_power_usage_milliwatts",
    },
    "temperature": {
        "C": "DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_GPU_TEMP_CELSIUS dcgm_gpu_temp accelerator_temperature_celsius "
        "accelerator_temperature_celcius nvidia_gpu_temperature_celsius gpu_junction_temperature gpu_edge_temperature "
        "rocm_temperature_celsius nvidia_smi_temperature_gpu",
    },
    "memory_used": {
        "MiB": "DCGM_FI_DEV_FB_USED dcgm_fb_used gpu_used_vram",
        "B": "DCGM_FI_DEV_FB_USED_BYTES accelerator_memory_used_bytes nvidia_gpu_memory_used_bytes nvidia_smi_memory_used_bytes",
    },
    "pcie_tx": {"B/s": "DCGM_FI_PROF_PCIE_TX_BYTES pcie_tx_bytes nvidia_gpu_pcie_tx_per_sec"},
    "pcie_rx": {"B/s": "DCGM_FI_PROF_PCIE_RX_BYTES pcie_rx_bytes nvidia_gpu_pcie_rx_per_sec"},
    "nvlink_tx": {"B/s": "DCGM_FI_PROF_NVLINK_TX_BYTES nvlink_tx_bytes nvidia_gpu_nvlink_total_tx_per_sec"},
    "nvlink_rx": {"B/s": "DCGM_FI_PROF_NVLINK_RX_BYTES nvlink_rx_bytes nvidia_gpu_nvlink_total_rx_per_sec"},
    "throttle": {"mask": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS DCGM_FI_DEV_CLOCK_THROTTLE_REASONS nvidia_gpu_clock_event_reason"},
    "energy": {
        "J": "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL nvidia_smi_energy_joules_total",
        "mJ": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION dcgm_total_energy_consumption",
        "uJ": "gpu_energy_consumed",
    },
    "xid": {"1": "DCGM_FI_DEV_XID_ERRORS"},
    "ecc_uncorrected": {"1": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"},
    "remapped_rows": {"1": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"},
    "remap_failed": {"1": "DCGM_FI_DEV_ROW_REMAP_FAILURE"},
    "nvlink_replays": {"1": "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"},
    "nvlink_recoveries": {"1": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"},
    "tensor_cycles": {"cycles": "DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL DCGM_FI_PROF_MMA_CYCLES_ACTIVE"},  # field 1086
    "sm_cycles": {"cycles": "DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL DCGM_FI_PROF_SM_CYCLES_ELAPSED"},  # field 1084
    "sm_active_cycles": {"cycles": "DCGM_FI_PROF_SM_CYCLES_ACTIVE_TOTAL DCGM_FI_PROF_SM_CYCLES_ACTIVE"},  # field 1085
}
_NAMES: dict[str, Alias] = {
    name: Alias(name, field, unit) for field, units in NAMES.items() for unit, names in units.items() for name in names.split()
}

# Names that mean a field only together with a label: name -> (label, its value -> (field, unit)).
_CLOCKS = {
    **dict.fromkeys(("system", "gpu_clock_type_system", "sm"), ("sm_clock", "MHz")),
    **dict.fromkeys(("memory", "gpu_clock_type_memory", "mem"), ("memory_clock", "MHz")),
}
_LABELLED: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "gpu_clock": ("clock_type", _CLOCKS),  # AMD device-metrics-exporter
    "nvidia_gpu_clock": ("type", _CLOCKS),  # plazonic
}


def known(name: str, labels: Mapping[str, str] | None = None) -> Alias | None:
    """Return what a metric or column name means, or None when it is not a field that Ullage keeps.

    A few names mean a field only with the right label (AMD's `gpu_clock{clock_type="system"}`): without `labels`
    they are None; `possible` tells them from names that never are a field.

    >>> known("DCGM_FI_DEV_SM_CLOCK")
    Alias(name='DCGM_FI_DEV_SM_CLOCK', field='sm_clock', unit='MHz', parts=False, label='', values=())
    >>> known("sm_clock").unit, known("go_goroutines")
    ('Hz', None)
    >>> known("amd_gpu_clock", {"clock_type": "system"}).field
    'sm_clock'
    """
    alias = _known(name)
    if alias is None and labels:
        label, meanings = _LABELLED.get(name.removeprefix("amd_"), ("", {}))
        meaning = meanings.get(labels.get(label, "").lower())
        return Alias(name, *meaning, parts=True) if meaning else None
    return alias


def known_with_label(name: str, field: str) -> Alias | None:
    """Return a name that means a field only together with a label, with the matchers of that label; None where it never does.

    >>> known_with_label("gpu_clock", "sm_clock").matchers
    'clock_type=~"(?i)(system|gpu_clock_type_system|sm)"'
    """
    label, meanings = _LABELLED.get(name.removeprefix("amd_"), ("", {}))
    found = {value: unit for value, (meant, unit) in meanings.items() if meant == field}
    if not found:
        return None
    return Alias(name, field, next(iter(found.values())), parts=True, label=label, values=tuple(found))


def possible(name: str) -> bool:
    """Return whether a name can be a field, be it only together with some label.

    >>> possible("gpu_clock"), possible("DCGM_FI_DEV_SM_CLOCK"), possible("up")
    (True, True, False)
    """
    return name.removeprefix("amd_") in _LABELLED or _known(name) is not None


@functools.lru_cache(maxsize=4096)
def _known(name: str) -> Alias | None:
    if name in FIELDS:  # our own name is in our own unit
        return Alias(name, name, FIELDS[name].unit)
    found = _NAMES.get(name) or _NAMES.get(name.removeprefix("amd_"))
    return Alias(name, found.field, found.unit) if found else _by_grammar(name)


# The grammar of names with a unit at the end (DCGM 4.6, Prometheus conventions): prefix, stem, unit, perhaps "total".
_GRAMMAR = re.compile(
    r"(?:dcgm_fi_dev_|dcgm_fi_prof_|dcgm_|accelerator_|nvidia_gpu_|nvidia_smi_|amd_gpu_|rocm_|gpu_)"
    r"(?P<stem>\w+?)_(?P<unit>hertz|hz|khz|mhz|ghz|ratio|percent|percentage|pct|watts|milliwatts|microwatts|joules"
    r"|millijoules|microjoules|bytes|mib|mebibytes|gib|celsius|celcius|bytes_per_second)(?:_total)?"
)
_UNITS = (
    "hertz:Hz hz:Hz khz:kHz mhz:MHz ghz:GHz ratio:1 percent:% percentage:% pct:% watts:W milliwatts:mW microwatts:uW joules:J "
    "millijoules:mJ microjoules:uJ bytes:B mib:MiB mebibytes:MiB gib:GiB celsius:C celcius:C bytes_per_second:B/s"
)
_SUFFIXES = dict(pair.split(":") for pair in _UNITS.split())
_DIMENSION = {
    **dict.fromkeys(("Hz", "kHz", "MHz", "GHz"), "Hz"),
    **dict.fromkeys(("1", "%"), "1"),
    **dict.fromkeys(("W", "mW", "uW"), "W"),
    **dict.fromkeys(("J", "mJ", "uJ"), "J"),
    **dict.fromkeys(("B", "MiB", "GiB"), "B"),
    "C": "C",
    "B/s": "B/s",
}
_STEMS = {
    **dict.fromkeys(("sm_clock", "sm_clocks", "clock_sm"), "sm_clock"),
    **dict.fromkeys(("memory_clock", "mem_clock", "clock_mem"), "memory_clock"),
    **dict.fromkeys(("board_power", "power_usage", "power_draw", "power"), "power"),
    **dict.fromkeys(("gpu_temp", "temp", "temperature", "gpu_temperature"), "temperature"),
    **dict.fromkeys(("fb_used", "memory_used", "mem_used", "used_vram", "vram_used"), "memory_used"),
    **dict.fromkeys(("gpu_energy", "energy", "total_energy_consumption", "energy_consumption"), "energy"),
    **dict.fromkeys(("gpu_util", "util", "utilization", "gpu_utilization"), "gpu_util"),
    **dict.fromkeys(("tensor_util", "tensor_active", "pipe_tensor_active", "any_tensor_util"), "tensor_active"),
    **dict.fromkeys(("sm_util", "sm_active"), "sm_active"),
    **dict.fromkeys(("sm_occupancy",), "sm_occupancy"),
    **dict.fromkeys(("gr_engine_util", "gr_engine_active", "graphics_util"), "gr_active"),
    **dict.fromkeys(("dram_util", "dram_active", "dram_bw_util"), "dram_active"),
    **{f"{pipe}_{word}": f"{pipe}_active" for pipe in ("fp64", "fp32", "fp16", "hmma", "imma", "dfma") for word in ("util", "active")},
    **{f"pipe_{pipe}_active": f"{pipe}_active" for pipe in ("fp64", "fp32", "fp16")},
    **{f"{pipe}_tensor_util": f"{pipe}_active" for pipe in ("hmma", "imma", "dfma")},
}


def _by_grammar(name: str) -> Alias | None:
    """Return the meaning of a name that no table holds, when its stem and the unit at its end agree on a field.

    >>> _by_grammar("DCGM_FI_DEV_SM_CLOCK_KHZ").unit, _by_grammar("DCGM_FI_DEV_FB_USED_RATIO")
    ('kHz', None)
    """
    parts = _GRAMMAR.fullmatch(name.lower())
    if parts is None or parts["stem"] not in _STEMS:
        return None
    field, unit = _STEMS[parts["stem"]], _SUFFIXES[parts["unit"]]
    return Alias(name, field, unit) if _DIMENSION[unit] == _DIMENSION[FIELDS[field].unit] else None
