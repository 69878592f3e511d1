"""Make the dictionary of counter metrics (`src/ullage/cupti/data/metrics.parquet`) from NVIDIA's wheels of CUPTI; needs no GPU.

    python tools/cupti_dictionary.py nvidia_cuda_cupti_cu12-12.0.146-….whl … nvidia_cuda_cupti-13.5.25-….whl

The wheels come from `pip download --no-deps nvidia-cuda-cupti==13.5.25` (`nvidia-cuda-cupti-cu12` for 12.x). Each one's libnvperf_host
is asked in a process of its own (`--ask`), by the interface that nvperf_host.h and nvperf_cuda_host.h declare: every chip that it
supports, every metric of it, its unit, and the hardware unit that counts it. Names, units and where each holds are kept; NVIDIA's
descriptions are not.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).parents[1] / "src/ullage/cupti/data/metrics.parquet"
KINDS = ("counter", "ratio", "throughput")  # in the order of NVPW_MetricType
SUM, NONE, PCT, RATIO = 3, 0, 20, 21  # of NVPW_RollupOp and NVPW_Submetric
UNSUPPORTED_GPU = 14  # of NVPA_Status: the names of chips that can't be asked any more are still given
ASKED = "libnvperf_host: NVPW_GetSupportedChipNames, NVPW_MetricsEvaluator_GetMetricNames, …Properties, …GetMetricDimUnits"
Row = tuple[str, str, str, str]  # name, kind, unit, hardware


def _struct(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """Return a parameter structure as the headers declare them: its size and a private pointer first."""
    return type(name, (ctypes.Structure,), {"_fields_": [("size", ctypes.c_size_t), ("private", ctypes.c_void_p), *fields]})


_POINTER, _SIZE, _BYTE, _WORD, _TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint8, ctypes.c_uint32, ctypes.c_char_p
INITIALIZE = _struct("Initialize")
CHIPS = _struct("Chips", ("names", ctypes.POINTER(_TEXT)), ("count", _SIZE))
SCRATCH = _struct("Scratch", ("chip", _TEXT), ("availability", _POINTER), ("bytes", _SIZE))
EVALUATOR = _struct(
    "Evaluator", ("scratch", _POINTER), ("bytes", _SIZE), ("chip", _TEXT), ("availability", _POINTER), ("image", _POINTER),
    ("image_bytes", _SIZE), ("evaluator", _POINTER),
)  # fmt: skip
NAMES = _struct("Names", ("evaluator", _POINTER), ("kind", _BYTE), ("text", _POINTER), ("begins", ctypes.POINTER(_SIZE)), ("count", _SIZE))
COUNTER = _struct("Counter", ("evaluator", _POINTER), ("index", _SIZE), ("description", _TEXT), ("hardware", _WORD))
QUOTIENT = _struct("Quotient", ("evaluator", _POINTER), ("index", _SIZE), ("description", _TEXT), ("hardware", ctypes.c_uint64))
THROUGHPUT = _struct(
    "Throughput", ("evaluator", _POINTER), ("index", _SIZE), ("description", _TEXT), ("hardware", _WORD), ("counters", _SIZE),
    ("counter_indices", _POINTER), ("parts", _SIZE), ("part_indices", _POINTER),
)  # fmt: skip
HARDWARE = _struct("Hardware", ("evaluator", _POINTER), ("unit", _WORD), ("name", _TEXT))
UNITS = _struct(
    "Units", ("evaluator", _POINTER), ("request", _POINTER), ("request_size", _SIZE), ("units", _POINTER), ("count", _SIZE),
    ("unit_size", _SIZE),
)  # fmt: skip
UNIT_NAME = _struct("UnitName", ("evaluator", _POINTER), ("unit", _WORD), ("singular", _TEXT), ("plural", _TEXT))
DESTROY = _struct("Destroy", ("evaluator", _POINTER))


class Request(ctypes.Structure):
    """NVPW_MetricEvalRequest."""

    _fields_ = (("index", _SIZE), ("kind", _BYTE), ("rollup", _BYTE), ("submetric", ctypes.c_uint16))


class Factor(ctypes.Structure):
    """NVPW_DimUnitFactor; the library is told its size without the padding."""

    _fields_ = (("unit", _WORD), ("exponent", ctypes.c_int8))


class RefusedError(Exception):
    """A call that returned something else than success."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} returned {code}")
        self.code = code


class Library:
    """A libnvperf_host."""

    def __init__(self, path: Path) -> None:
        self.handle = ctypes.CDLL(str(path))
        self.call("NVPW_InitializeHost", INITIALIZE())

    def call(self, name: str, asked: Any) -> Any:
        """Call a function with its parameters, and return them as it left them."""
        last, kind = type(asked)._fields_[-1]
        asked.size = getattr(type(asked), last).offset + ctypes.sizeof(kind)
        code = getattr(self.handle, name)(ctypes.byref(asked))
        if code:
            raise RefusedError(name, code)
        return asked

    def chips(self) -> list[str]:
        """Return the chips that it names."""
        found = self.call("NVPW_GetSupportedChipNames", CHIPS())
        return sorted({found.names[i].decode() for i in range(found.count)})


class Chip:
    """The metrics of one chip."""

    def __init__(self, library: Library, chip: str) -> None:
        self.library = library
        size = library.call("NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", SCRATCH(chip=chip.encode())).bytes
        self._scratch = (ctypes.c_uint8 * size)()
        asked = EVALUATOR(scratch=ctypes.addressof(self._scratch), bytes=size, chip=chip.encode())
        self.evaluator = library.call("NVPW_CUDA_MetricsEvaluator_Initialize", asked).evaluator
        self._words: dict[tuple[str, int], str] = {}

    def rows(self) -> Iterator[Row]:
        """Yield name, kind, unit and hardware of every metric."""
        for kind in range(len(KINDS)):
            found = self._ask("GetMetricNames", NAMES, kind=kind)
            for index in range(found.count):
                name = ctypes.string_at(found.text + found.begins[index]).decode()
                yield name, KINDS[kind], self._unit(kind, index), self._hardware(kind, index)

    def close(self) -> None:
        """Let the library forget the chip."""
        self._ask("Destroy", DESTROY)

    def _ask(self, name: str, structure: Any, **fields: Any) -> Any:
        return self.library.call(f"NVPW_MetricsEvaluator_{name}", structure(evaluator=self.evaluator, **fields))

    def _hardware(self, kind: int, index: int) -> str:
        structure, name = ((COUNTER, "Counter"), (QUOTIENT, "RatioMetric"), (THROUGHPUT, "ThroughputMetric"))[kind]
        unit = self._ask(f"Get{name}Properties", structure, index=index).hardware & 0xFFFFFFFF
        if ("hardware", unit) not in self._words:
            self._words["hardware", unit] = self._ask("HwUnitToString", HARDWARE, unit=unit).name.decode()
        return self._words["hardware", unit]

    def _unit(self, kind: int, index: int) -> str:
        request = Request(index, kind, SUM, (NONE, RATIO, PCT)[kind])
        factors = (Factor * 16)()
        found = self._ask(
            "GetMetricDimUnits", UNITS, request=ctypes.addressof(request), request_size=12, units=ctypes.addressof(factors), count=16,
            unit_size=5,
        )  # fmt: skip
        return unit_text([(self._unit_name(f.unit), f.exponent) for f in factors[: found.count]])

    def _unit_name(self, unit: int) -> str:
        if ("unit", unit) not in self._words:
            self._words["unit", unit] = self._ask("DimUnitToString", UNIT_NAME, unit=unit).plural.decode()
        return self._words["unit", unit]


def unit_text(factors: list[tuple[str, int]]) -> str:
    """Return a unit from its factors: "1" without any, "unknown" for what the library calls invalid.

    >>> unit_text([("sectors", 1), ("requests", -1)]), unit_text([]), unit_text([("cycles", -1)]), unit_text([("invalid", 1)])
    ('sectors/requests', '1', '1/cycles', 'unknown')
    """
    sides: dict[bool, list[str]] = {True: [], False: []}
    for name, exponent in sorted(factors):
        if exponent and name != "unitless":
            word = "unknown" if name == "invalid" else name
            sides[exponent > 0].append(word if abs(exponent) == 1 else f"{word}^{abs(exponent)}")
    return "/".join(["*".join(sides[True]) or "1", *sides[False]])


def ask(path: Path) -> dict[str, list[Row]]:
    """Return the metrics of every chip that a libnvperf_host supports, by the chip's name."""
    library = Library(path)
    found = {}
    for name in library.chips():
        try:
            chip = Chip(library, name)
        except RefusedError as refused:
            if refused.code == UNSUPPORTED_GPU:
                continue
            raise
        found[name] = sorted(chip.rows())
        chip.close()
    return found


def of_wheel(wheel: Path) -> tuple[dict[str, str], dict[str, list[Row]]]:
    """Return where a wheel's answers come from, and the answers, as a child process gives them."""
    package, version = wheel.name.split("-")[:2]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith("libnvperf_host.so")]
        library = Path(archive.extract(member, folder))
        done = subprocess.run([sys.executable, __file__, "--ask", str(library)], stdout=subprocess.PIPE, check=True)
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
    release = ".".join(version.split(".")[:2])
    origin = {"release": release, "package": package.replace("_", "-"), "version": version, "library": "libnvperf_host.so"}
    return {**origin, "sha256": digest, "asked": ASKED}, json.loads(done.stdout)


def table(answers: list[tuple[dict[str, str], dict[str, list[Row]]]]) -> pa.Table:
    """Return the dictionary: a row for each (name, kind, unit, hardware), a column for each chip.

    Bit r of a chip's column is set where release r (in the order of the provenance) has the row.
    """
    chips = sorted({chip for _, found in answers for chip in found})
    masks: dict[Row, dict[str, int]] = {}
    for bit, (_, found) in enumerate(answers):
        for chip, rows in found.items():
            for row in rows:
                by_chip = masks.setdefault(tuple(row), {})  # type: ignore[arg-type]
                by_chip[chip] = by_chip.get(chip, 0) | 1 << bit
    ordered = sorted(masks)
    columns: dict[str, Any] = {name: [row[i] for row in ordered] for i, name in enumerate(("name", "kind", "unit", "hardware"))}
    for chip in chips:
        columns[chip] = pa.array([masks[row].get(chip, 0) for row in ordered], pa.uint32())
    return pa.table(columns).replace_schema_metadata({"provenance": json.dumps([origin for origin, _ in answers])})


def write(found: pa.Table, path: Path) -> None:
    """Write the dictionary; names front-coded, everything else by dictionary, zstd over both."""
    words = [name for name in found.column_names if name != "name"]
    pq.write_table(
        found, path, compression="zstd", compression_level=19, use_dictionary=words, column_encoding={"name": "DELTA_BYTE_ARRAY"},
        write_statistics=False, write_page_checksum=True,
    )  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Make Ullage's dictionary of counter metrics from wheels of CUPTI.")
    parser.add_argument("wheels", nargs="*", type=Path, metavar="WHEEL")
    parser.add_argument("--ask", type=Path, metavar="LIBRARY", help="Print what one libnvperf_host answers, as JSON.")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE")
    given = parser.parse_args()
    if given.ask:
        json.dump(ask(given.ask), sys.stdout)
        return
    if not given.wheels:
        parser.error("name the wheels")
    in_order = sorted(given.wheels, key=lambda wheel: [int(part) for part in re.findall(r"\d+", wheel.name.split("-")[1])])
    answers: list[tuple[dict[str, str], dict[str, list[Row]]]] = []
    for wheel in in_order:
        origin, found = of_wheel(wheel)
        if answers and answers[-1][0]["release"] == origin["release"]:
            parser.error(f"there are two wheels of {origin['release']}; give one")
        answers.append((origin, found))
        sys.stderr.write(f"{origin['release']}: {len(found)} chips, {sum(map(len, found.values())):,} metrics\n")
    write(table(answers), given.out)


if __name__ == "__main__":
    main()
