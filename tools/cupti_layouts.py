"""Write what Ullage knows of CUPTI's records: layouts per release, and the names of kinds, results and callbacks.

For every release the wheel that ships it is fetched with pip, its headers are compiled with `gcc -g`, and the debugging information of
that object tells names, offsets, types and sizes: facts, no text of a header. Which struct a kind has in a release is said by the header's
comment at the kind; where the release's own library walks buffers without a driver (12.0 to 13.1), the size by which it steps is believed
before the comment, and kinds that it doesn't know are left out, there and in later releases (those of the profiler that ended with 12).

    pip install pyelftools
    python tools/cupti_layouts.py                 # writes src/ullage/cupti/data/*.json.xz; about 400 MB of wheels on the first run

Needs gcc and a network. CUDA's own headers come from the newest wheel of the runtime.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

from ullage.cupti.walker import measured

DATA = Path(__file__).parent.parent / "src" / "ullage" / "cupti" / "data"
WHEELS = {
    "nvidia-cuda-cupti-cu12": """12.0.90 12.0.146 12.1.62 12.1.105 12.2.60 12.2.131 12.2.142 12.3.52 12.3.101 12.4.99 12.4.127 12.5.39
        12.5.82 12.6.37 12.6.68 12.6.80 12.8.57 12.8.90 12.9.19 12.9.79""",
    "nvidia-cuda-cupti": "13.0.48 13.0.85 13.1.75 13.1.115 13.2.23 13.2.75 13.2.86 13.3.35 13.3.75 13.4.58 13.4.92 13.5.25",
}
TOOLKIT = {"nvidia-cuda-runtime": "13.5.37", "nvidia-cuda-crt": "13.5.37"}  # cuda.h and what it includes
HEADERS = """cupti_result.h cupti_version.h cupti_activity.h cupti_callbacks.h cupti_driver_cbid.h cupti_runtime_cbid.h cupti_nvtx_cbid.h
    cupti_pcsampling.h cupti_pmsampling.h cupti_profiler_target.h cupti_profiler_host.h cupti_range_profiler.h cupti_sass_metrics.h
    cupti_activity_deprecated.h"""
KIND = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*(CUPTI_ACTIVITY_KIND_\w+)", re.DOTALL)
# how many values an enumeration has: another number in each release
ENDS = re.compile(r"_KIND_COUNT$|_CBID_SIZE$|CBID_[A-Z]+_SIZE$|DOMAIN_SIZE$|_FIELD_MAX$")
NAMELESS = re.compile(r"_(cuda|reserved)\d+(_|$)|_COUNT$|_SIZE$")
Field = list[Any]  # name, offset, type


def main() -> None:
    """Read every wheel, oldest first, and write the data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "ullage" / "cupti", help="where wheels are kept")
    cache = parser.parse_args().cache
    toolkit = [unpacked(cache, package, version) for package, version in TOOLKIT.items()]
    data = Data()
    for package, versions in WHEELS.items():
        for version in versions.split():
            data.add(version, unpacked(cache, package, version), toolkit, cache)
    write("layouts", data.layouts())
    write("names", data.names)


def write(name: str, value: object) -> None:
    """Write compressed JSON that is the same for the same value."""
    text = json.dumps(value, separators=(",", ":")).encode()
    path = DATA / f"{name}.json.xz"
    path.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    print(f"{path}: {path.stat().st_size:,} bytes")


def unpacked(cache: Path, package: str, version: str) -> Path:
    """Return the folder of an unpacked wheel, fetching it if it isn't there."""
    folder = cache / f"{package}-{version}"
    if not folder.exists():
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(cache), f"{package}=={version}"]
        subprocess.run(fetch, check=True)
        wheel = next(cache.glob(f"{package.replace('-', '_')}-{version}-*.whl"))
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


class Data:
    """What was read so far: the distinct structs, which of them each release has, names by number."""

    def __init__(self) -> None:
        self._structs: dict[str, int] = {}  # a struct as JSON, and its number
        self._releases: dict[int, dict[str, Any]] = {}
        self._gone: set[int] = set()  # kinds in the header that the last library that could be asked doesn't know
        self.names: dict[str, dict[int, str]] = {}

    def layouts(self) -> dict[str, Any]:
        """Return the structs and the releases as they are written."""
        return {"structs": [json.loads(text) for text in self._structs], "releases": self._releases}

    def add(self, wheel: str, folder: Path, toolkit: list[Path], cache: Path) -> None:
        """Read one wheel. A later wheel with the same number of cuptiGetVersion must have the same records."""
        include = next(folder.rglob("cupti.h")).parent
        number = int(re.findall(r"#define CUPTI_API_VERSION (\d+)", (include / "cupti_version.h").read_text())[0])
        structs, enums = dwarf(compiled(include, toolkit, cache))
        known = {name: self._structs.setdefault(json.dumps([name, *struct]), len(self._structs)) for name, struct in structs.items()}
        comments = structs_of_kinds((include / "cupti_activity.h").read_text(), set(structs))
        kinds = {kind: comments[name] for kind, name in enums["CUpti_ActivityKind"].items() if kind}
        if said := measured(next(folder.rglob("libcupti.so.1[23]")), kinds):
            self._gone = kinds.keys() - said.keys()
            kinds = believed(said, kinds, structs)
        kinds = {kind: name for kind, name in kinds.items() if kind not in self._gone}
        entry = {"kinds": {kind: known[name] for kind, name in kinds.items()}, "structs": sorted(known.values())}
        before = self._releases.get(number)
        if before and before["kinds"] != entry["kinds"]:
            sys.exit(f"{wheel} says it is {number}, as {before['wheels'][-1]} does, but has other records")
        self._releases[number] = {"wheels": [*(before["wheels"] if before else []), wheel], **entry}
        for name, values in enums.items():
            self._name(self.names.setdefault(name, {}), values)
        print(f"{wheel}: {number}, {len(kinds)} kinds, the library says {len(said)}; {len(structs)} structs")

    def _name(self, known: dict[int, str], values: dict[int, str]) -> None:
        """Take over the names of an enumeration. Before and after its time an id may be called by its number alone."""
        for value, label in values.items():
            if value not in known or not NAMELESS.search(label):
                if NAMELESS.search(known.get(value, "_reserved0")) is None and known[value] != label:
                    print(f"  {known[value]} is now {label}")
                known[value] = label


def structs_of_kinds(header: str, known: set[str]) -> dict[str, str]:
    """Return the struct that the comment at each kind names."""
    found = {}
    for comment, name in KIND.findall(header):
        named = set(re.findall(r"CUpti_Activity\w+", re.sub(r"\s*\n\s*\*\s*", " ", comment))) & known
        if len(named) == 1:
            found[name] = named.pop()
    return found


def believed(said: dict[int, int], kinds: dict[int, str], structs: dict[str, list[Any]]) -> dict[int, str]:
    """Return the struct of each kind that a library steps over, the library's own sizes believed before a comment.

    In 12.4 to 13.0 the comment at JIT names an older struct than the one by which the library steps.
    """
    known = {kind: name for kind, name in kinds.items() if kind in said}
    return {kind: name if structs[name][0] == said[kind] else namesake(name, said[kind], structs) for kind, name in known.items()}


def namesake(name: str, wanted: int, structs: dict[str, list[Any]]) -> str:
    """Return the newest version of a struct that has so many bytes."""
    stem = name.rstrip("0123456789")
    versions = [other for other in structs if re.fullmatch(rf"{stem}\d*", other) and structs[other][0] == wanted]
    if not versions:
        sys.exit(f"the library steps by {wanted} bytes where the headers say {name}, and no version of it is as long")
    newest = max(versions, key=lambda other: int(other[len(stem) :] or 1))
    print(f"  {name} is {newest} in the library")
    return newest


def compiled(include: Path, toolkit: list[Path], cache: Path) -> Path:
    """Return an object file with the debugging information of every type that the headers declare.

    What is not C is left out (cupti_profiler_host.h of 12.6).
    """
    source, made = cache / "all.c", cache / "all.o"
    start = "".join(f"#include <{header}>\n" for header in ("stddef.h", "stdbool.h", "cuda.h"))
    folders = [include, *(next(folder.rglob("include")) for folder in toolkit)]
    gcc = ["gcc", "-x", "c", *(f"-I{folder}" for folder in folders)]
    for header in HEADERS.split():
        line = f"#include <{header}>\n"
        if subprocess.run([*gcc, "-fsyntax-only", "-"], input=(start + line).encode(), capture_output=True, check=False).returncode == 0:
            start += line
        else:
            print(f"  without {header}")
    source.write_text(start)
    subprocess.run([*gcc, "-g", "-fno-eliminate-unused-debug-types", "-c", "-o", str(made), str(source)], check=True)
    return made


def dwarf(made: Path) -> tuple[dict[str, list[Any]], dict[str, dict[int, str]]]:
    """Return the structs ([size, fields] by name) and the enumerations (names by number) that CUPTI's headers declare."""
    structs: dict[str, list[Any]] = {}
    enums: dict[str, dict[int, str]] = {}
    with made.open("rb") as file:
        for unit in ELFFile(file).get_dwarf_info().iter_CUs():
            for die in unit.iter_DIEs():
                name = text(die)
                if die.tag != "DW_TAG_typedef" or not name.startswith(("CUpti", "CUpti_")):
                    continue
                under = stripped(die)
                if under.tag == "DW_TAG_structure_type" and "DW_AT_byte_size" in under.attributes:
                    structs[name] = [size(under), list(fields(under))]
                elif under.tag == "DW_TAG_enumeration_type":
                    enums[name] = dict(enumerators(under))
    return structs, enums


def text(die: DIE) -> str:
    """Return the name of an entry, "" where it has none."""
    return die.attributes["DW_AT_name"].value.decode() if "DW_AT_name" in die.attributes else ""


def size(die: DIE) -> int:
    """Return the bytes of a type."""
    return int(die.attributes["DW_AT_byte_size"].value)


def stripped(die: DIE) -> DIE:
    """Return what a member or a typedef is of, without further typedefs and qualifiers."""
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag not in ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type"):
            break
    return die


def enumerators(die: DIE) -> Iterator[tuple[int, str]]:
    """Yield values and names of an enumeration, without those that only end it."""
    for child in die.iter_children():
        value = child.attributes["DW_AT_const_value"].value if child.tag == "DW_TAG_enumerator" else -1
        if 0 <= value < 0x7FFFFFFF and not ENDS.search(text(child)):
            yield value, text(child)


def fields(die: DIE, prefix: str = "", base: int = 0) -> Iterator[Field]:
    """Yield name, offset and type of each field; those of a struct inside a struct as `outer.inner`; bit fields are left out."""
    for member in die.iter_children():
        if member.tag != "DW_TAG_member" or "DW_AT_bit_size" in member.attributes:
            continue
        offset = base + (member.attributes["DW_AT_data_member_location"].value if "DW_AT_data_member_location" in member.attributes else 0)
        name, under = prefix + text(member), stripped(member)
        if under.tag in ("DW_TAG_structure_type", "DW_TAG_union_type"):
            yield from fields(under, f"{name}." if text(member) else prefix, offset)
        else:
            yield [name, offset, code(under)]


def code(die: DIE) -> str:
    """Return a type as NumPy writes it; "char*" for a pointer to text."""
    if die.tag == "DW_TAG_pointer_type":
        return "char*" if text(stripped(die)) == "char" else "<u8"
    if die.tag == "DW_TAG_array_type":
        counts = [child.attributes["DW_AT_upper_bound"].value + 1 for child in die.iter_children()]
        return f"({','.join(map(str, counts))},){code(stripped(die))}"
    if die.tag == "DW_TAG_enumeration_type":
        return f"<u{size(die)}"
    encoding = {2: "u", 4: "f", 5: "i", 6: "i", 7: "u", 8: "u"}[die.attributes["DW_AT_encoding"].value]
    return f"{'<' if size(die) > 1 else ''}{encoding}{size(die)}"


if __name__ == "__main__":
    main()
