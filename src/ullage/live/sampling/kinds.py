"""The ways in which this machine's GPUs can be read, and how each is opened. NVIDIA by NVML, or else nvidia-smi; AMD by amdsmi."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ullage.errors import missing_extra
from ullage.problems import Problems
from ullage.sources import amdsmi, nvidia_smi, nvml
from ullage.sources.machine import GpuLibrary
from ullage.sources.source import Options

Opened = AbstractContextManager[GpuLibrary]


@dataclass(frozen=True)
class GpuReader:
    """A way of reading GPUs: its name, how it is opened, and the kind that stands in for it where it can't be."""

    name: str
    opened: Callable[[Options, Problems, str], Opened]
    otherwise: GpuReader | None = None


def _nvml(options: Options, problems: Problems, host: str) -> Opened:
    return nvml.opened(_pynvml(), options, problems, host)


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise missing_extra("nvidia-ml-py", "gpu", "NVML") from error
    return pynvml


def _pm(options: Options, problems: Problems, host: str) -> Opened:
    from ullage.live.sampling import pm  # what few ask for is not loaded for all

    return pm.opened(options, problems, host)


def _amdsmi(options: Options, problems: Problems, host: str) -> Opened:
    return amdsmi.opened(amdsmi.library(), options, problems, host)


NVIDIA_SMI = GpuReader("nvidia-smi", nvidia_smi.opened)
KINDS = (GpuReader("NVML", _nvml, otherwise=NVIDIA_SMI), GpuReader("amdsmi", _amdsmi))
PM = (GpuReader("PM sampling", _pm),)
