"""A stand-in for amdsmi: the functions that are asked, over GPUs that the test describes. Answers are those of amdsmi 7.0."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace


class AmdSmiLibraryException(Exception):
    def __init__(self, err_code, words="AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported"):
        super().__init__(err_code)
        self.err_code, self.words = err_code, words

    def __str__(self):
        return f"Error code:\n\t{self.err_code} | {self.words}"


NOT_SUPPORTED = AmdSmiLibraryException(2)
LOST = AmdSmiLibraryException(34, "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded")


@dataclass
class Gpu:
    """What the double's GPU answers, in amdsmi's units. An exception as an answer is raised."""

    uuid: object = "29ff74a1-0000-1000-80f0-8c4ae0000000"
    asic: object = field(default_factory=lambda: {"market_name": "AMD Instinct MI300X"})
    board: object = field(default_factory=lambda: {"product_name": "MI300X board"})
    activity: object = field(default_factory=lambda: {"gfx_activity": 92, "umc_activity": 41, "mm_activity": "N/A"})
    clocks: object = field(default_factory=lambda: {"GFX": {"clk": 1950, "max_clk": 2100}, "MEM": {"clk": 1300, "max_clk": 1300}})
    power: object = field(default_factory=lambda: {"current_socket_power": 688, "average_socket_power": "N/A", "power_limit": 750000000})
    energy: object = field(
        default_factory=lambda: {"energy_accumulator": 2_000_000_000, "counter_resolution": 15.259, "timestamp": 1}
    )  # 15.259 uJ a step
    temperatures: object = field(default_factory=lambda: {"HOTSPOT": 71, "EDGE": NOT_SUPPORTED})
    vram: object = field(default_factory=lambda: {"vram_total": 196592, "vram_used": 65536})
    cap: object = field(default_factory=lambda: {"power_cap": 750_000_000})


class Amdsmi:
    """The module. `fails` is what `amdsmi_init` raises."""

    AmdSmiClkType = IntEnum("AmdSmiClkType", ["SYS", "GFX", "MEM"])
    AmdSmiTemperatureType = IntEnum("AmdSmiTemperatureType", ["EDGE", "HOTSPOT"])
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)

    def __init__(self, *gpus, fails=None):
        self.gpus, self.fails, self.running = list(gpus), fails, False

    def amdsmi_init(self):
        _answer(self.fails)
        self.running = True

    def amdsmi_shut_down(self):
        self.running = False

    def amdsmi_get_processor_handles(self):
        return self.gpus

    def amdsmi_get_gpu_device_uuid(self, handle):
        return _answer(handle.uuid)

    def amdsmi_get_gpu_asic_info(self, handle):
        return _answer(handle.asic)

    def amdsmi_get_gpu_board_info(self, handle):
        return _answer(handle.board)

    def amdsmi_get_gpu_activity(self, handle):
        return _answer(handle.activity)

    def amdsmi_get_clock_info(self, handle, kind):
        return _answer(_answer(handle.clocks)[kind.name])

    def amdsmi_get_power_info(self, handle):
        return _answer(handle.power)

    def amdsmi_get_energy_count(self, handle):
        return _answer(handle.energy)

    def amdsmi_get_temp_metric(self, handle, sensor, metric):
        return _answer(_answer(handle.temperatures)[sensor.name])

    def amdsmi_get_gpu_vram_usage(self, handle):
        return _answer(handle.vram)

    def amdsmi_get_power_cap_info(self, handle):
        return _answer(handle.cap)


def _answer(value):
    if isinstance(value, Exception):
        raise value
    return value
