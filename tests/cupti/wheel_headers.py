"""The headers of CUDA's wheels, where they are installed: what NVIDIA wrote is the reference for sizes and offsets."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest


def hostly():
    """Return a libcupti whose host side answers without a driver (CUDA 12.0 to 13.1); skips where none is installed."""
    found = [(number, folder[0].parent / "lib") for folder, number in headers() if number < 130200]
    files = [path for _, place in sorted(found, reverse=True) for path in sorted(place.glob("libcupti.so.1*"))]
    return files[0] if files else pytest.skip("no libcupti up to 13.1: pip install nvidia-cuda-cupti==13.1.115")


def headers():
    """Return ([folders to include], cuptiGetVersion) of each CUPTI whose headers are here; skips where there are none."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(one) for one in (spec.submodule_search_locations or () if spec else ())]
    driver = next((path.parent for place in places for path in sorted(place.glob("*/include/cuda.h"))), None)
    found = []
    for header in sorted(path for place in places for path in place.glob("*/include/cupti_pcsampling.h")):
        number = re.search(r"#define CUPTI_API_VERSION\s+(\d+)", (header.parent / "cupti_version.h").read_text())
        if driver is not None and number:
            found.append(([header.parent, driver], int(number[1])))
    return found or pytest.skip("no headers of CUPTI: pip install nvidia-cuda-cupti")
