"""This machine's AMD GPUs, read live through amdsmi, the Python package of ROCm's AMD SMI.

It tells the graphics engine's activity (which AMD's tools call GPU use), memory activity, clocks, power, energy and
memory, and nothing of the matrix cores: there is no OFU from it alone. Names and units: `amdsmi_interface.py` of
amdsmi 6.2 to 7.0. Activities are percent, clocks MHz, power W (its cap uW), memory MB, energy in steps of
`counter_resolution` uJ; "N/A" and numbers of all ones mean no value.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources.machine import DeviceReading, GpuLibrary, Limits, rows
from ullage.sources.source import Options, Place, source

UNITS = {
    "gr_active": "%",
    "gpu_util": "%",
    "dram_active": "%",
    "sm_clock": "MHz",
    "memory_clock": "MHz",
    "power": "W",
    "energy": "uJ",
    "temperature": "C",
    "memory_used": "MiB",
}
_ALL_ONES = {0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
_NO_SUCH = (2, 3)  # AMDSMI_STATUS_NOT_SUPPORTED, …_NOT_YET_IMPLEMENTED
_INSTALL = "it comes with ROCm: pip install /opt/rocm/share/amd_smi"


def recognise(place: Place) -> int:
    """Return 2 for the place 'amdsmi', else 0."""
    return 2 if place.path is None and place.name == "amdsmi" else 0


@source("amdsmi", recognise=recognise, reads="this machine's AMD GPUs, live (the place 'amdsmi'; no OFU), with --watch seconds")
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:  # noqa: ARG001
    """Yield a batch every `options.interval` seconds for `options.watch` seconds, a row for each GPU. Raises UllageError without any."""
    import socket

    with opened(library(), options, problems, socket.gethostname()) as machine:
        yield from machine.watched(options)


def library() -> Any:
    """Return the module amdsmi. Raises UllageError where it, or the library beneath it, is not installed."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints where it can't find its library
            import amdsmi
    except ImportError as error:
        raise UllageError("the library 'amdsmi' is not installed", _INSTALL) from error
    except Exception as error:  # without libamd_smi.so its import ends in a KeyError or an OSError
        raise UllageError(f"the library 'amdsmi' can't be loaded ({harmless(repr(error), 100)})", _INSTALL) from error
    return amdsmi


@dataclass(frozen=True)
class _Gpu:
    handle: Any
    index: int
    uuid: str
    model: str


@contextmanager
def opened(smi: Any, options: Options, problems: Problems, host: str) -> Iterator[GpuLibrary]:
    """Open every GPU that `smi` (the module amdsmi, or its double) knows. Raises UllageError without driver or GPU."""
    try:
        smi.amdsmi_init()
    except Exception as error:
        raise UllageError(f"AMD's driver does not answer ({_words(error)})", "`amd-smi list` should work here") from error
    try:
        gpus = _gpus(smi, problems)
        problems.note("amdsmi tells no activity of the matrix cores, so OFU is not known for AMD GPUs")
        yield GpuLibrary(
            read=lambda moment: rows(moment, host, [_reading(smi, gpu, problems) for gpu in gpus], UNITS, options, problems),
            limits={gpu.uuid: _limits(smi, gpu) for gpu in gpus},
        )
    finally:
        with contextlib.suppress(Exception):
            smi.amdsmi_shut_down()


def _words(error: Exception) -> str:
    return harmless(" ".join(str(error).split()), 120) or type(error).__name__


def _gpus(smi: Any, problems: Problems) -> list[_Gpu]:
    try:
        handles = smi.amdsmi_get_processor_handles()
    except Exception as error:
        raise UllageError(f"AMD's driver does not say which GPUs there are ({_words(error)})", "`amd-smi list` should work here") from error
    found = []
    for index, handle in enumerate(handles):
        try:
            found.append(_Gpu(handle, index, str(smi.amdsmi_get_gpu_device_uuid(handle)), _model(smi, handle)))
        except Exception as error:
            problems.drop("GPUs that do not answer", where=f"AMD GPU {index}: {_words(error)}")
    if not found:
        raise UllageError("amdsmi finds no GPU", "`amd-smi list` lists what the driver sees")
    return found


def _model(smi: Any, handle: Any) -> str:
    """Return the GPU's name: the chip's on the market, else the board's."""
    market = str(smi.amdsmi_get_gpu_asic_info(handle).get("market_name", ""))
    if market not in ("", "N/A"):
        return market
    return str(smi.amdsmi_get_gpu_board_info(handle).get("product_name", "AMD GPU"))


def _reading(smi: Any, gpu: _Gpu, problems: Problems) -> DeviceReading:
    """Return what a GPU tells now; what it can't tell is absent."""
    told: dict[str, float] = {}
    for name, attempts in _questions(smi, gpu.handle).items():
        refusal = ""
        for attempt in attempts:
            try:
                value = _number(attempt())
            except Exception as error:  # amdsmi raises its own exceptions, KeyError and AttributeError, by release
                refusal = "" if _unsupported(error) else _words(error)
                continue
            if value is not None:
                told[name] = value
                break
        else:
            if refusal:
                problems.drop("readings that the driver refused", where=f"AMD GPU {gpu.index}, {name}: {refusal}")
    return DeviceReading(gpu.uuid, gpu.index, gpu.model, told)


def _unsupported(error: Exception) -> bool:
    """Return whether an error only says that this GPU or this release has no such reading."""
    return isinstance(error, KeyError | AttributeError) or getattr(error, "err_code", None) in _NO_SUCH


def _number(told: Any) -> float | None:
    if isinstance(told, bool) or not isinstance(told, int | float) or told in _ALL_ONES or not math.isfinite(told):
        return None
    return float(told)


def _questions(smi: Any, handle: Any) -> dict[str, tuple[Callable[[], Any], ...]]:
    """Return how each field is asked for, the best way first."""

    def activity(engine: str) -> Callable[[], Any]:
        return lambda: smi.amdsmi_get_gpu_activity(handle)[engine]

    def clock(kind: str, key: str) -> Callable[[], Any]:
        return lambda: smi.amdsmi_get_clock_info(handle, getattr(smi.AmdSmiClkType, kind))[key]

    def power(key: str) -> Callable[[], Any]:
        return lambda: smi.amdsmi_get_power_info(handle)[key]

    def temperature(sensor: str) -> Callable[[], Any]:
        return lambda: smi.amdsmi_get_temp_metric(handle, getattr(smi.AmdSmiTemperatureType, sensor), smi.AmdSmiTemperatureMetric.CURRENT)

    return {
        "gr_active": (activity("gfx_activity"),),
        "gpu_util": (activity("gfx_activity"),),  # what rocm-smi and amd-smi call GPU use
        "dram_active": (activity("umc_activity"),),
        "sm_clock": (clock("GFX", "clk"), clock("GFX", "cur_clk")),  # the key before ROCm 6.1
        "memory_clock": (clock("MEM", "clk"), clock("MEM", "cur_clk")),
        "power": (power("current_socket_power"), power("average_socket_power")),  # MI300 has the first, MI200 the second
        "energy": (lambda: _energy(smi.amdsmi_get_energy_count(handle)),),
        "temperature": (temperature("HOTSPOT"), temperature("EDGE")),
        "memory_used": (lambda: smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"],),
    }


def _energy(told: dict[str, Any]) -> float | None:
    """Return uJ since the driver was loaded."""
    steps, size = _number(told.get("energy_accumulator", told.get("power"))), _number(told["counter_resolution"])  # before ROCm 6: "power"
    return None if steps is None or size is None else steps * size


def _limits(smi: Any, gpu: _Gpu) -> Limits:
    def told(ask: Callable[[], Any], factor: float) -> float | None:
        try:
            value = _number(ask())
        except Exception:
            return None
        return None if not value else value * factor

    return Limits(
        power=told(lambda: smi.amdsmi_get_power_cap_info(gpu.handle)["power_cap"], 1e-6),
        sm_clock=told(lambda: smi.amdsmi_get_clock_info(gpu.handle, smi.AmdSmiClkType.GFX)["max_clk"], 1e6),
        memory=told(lambda: smi.amdsmi_get_gpu_vram_usage(gpu.handle)["vram_total"], 2.0**20),
    )
