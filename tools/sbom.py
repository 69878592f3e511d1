"""Write what a wheel holds and needs, as CycloneDX 1.6, beside it: python tools/sbom.py dist/ullage-*.whl

The wheel carries no other package. Listed are the compiled files in it, and the packages that it brings along when it is installed, of the
versions that are installed here, where the wheel was built; packages of extras are optional and stand for themselves. The same wheel in the
same environment gives the same file.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

Component = dict[str, Any]


def main(wheels: Iterable[str]) -> None:
    """Write a file beside each wheel, of its name and with the ending .cdx.json."""
    for wheel in map(Path, wheels):
        target = wheel.with_suffix(".cdx.json")
        target.write_text(json.dumps(bill_of_materials(wheel), indent=1) + "\n", encoding="utf-8")
        print(target)


def bill_of_materials(wheel: Path) -> dict[str, Any]:
    """Return the document of a wheel."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with zipfile.ZipFile(wheel) as archive:
        [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        told = HeaderParser().parsestr(archive.read(name).decode("utf-8"))
        files = [_file(one, archive.read(one)) for one in sorted(archive.namelist()) if one.endswith(".so")]
    needs = [Requirement(line) for line in told.get_all("Requires-Dist", [])]
    required, graph = closure(one for one in needs if one.marker is None or one.marker.evaluate({"extra": ""}))
    extras = sorted({folded(one.name) for one in needs} - {*required})
    own = _package(folded(str(told["Name"])), str(told["Version"]), str(told["License-Expression"] or ""), "application")
    packages = [_installed_package(one, "required") for one in sorted(required)] + [_installed_package(one, "optional") for one in extras]
    direct = sorted({folded(one.name) for one in needs})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": own | {"hashes": [_hash(digest)]}},
        "components": [*files, *packages],
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": [*(one["bom-ref"] for one in files), *direct]},
            *({"ref": one, "dependsOn": sorted(graph[one])} for one in sorted(required)),
        ],
    }


def closure(needs: Iterable[Requirement]) -> tuple[set[str], dict[str, set[str]]]:
    """Return the packages that some requirements bring along, and which each of these needs itself. Raises where one is not installed."""
    waiting, graph, seen = list(needs), dict[str, set[str]](), set[tuple[str, str]]()
    while waiting:
        one = waiting.pop()
        name, own = folded(one.name), [Requirement(line) for line in metadata.requires(one.name) or []]
        for extra in {"", *one.extras} - {extra for package, extra in seen if package == name}:
            seen.add((name, extra))
            taken = [need for need in own if need.marker is None or need.marker.evaluate({"extra": extra})]
            graph.setdefault(name, set()).update(folded(need.name) for need in taken)
            waiting += taken
    return {*graph}, graph


def folded(name: str) -> str:
    """Return the name of a package as the index compares it.

    >>> folded("Ibis_framework"), folded("zope.interface")
    ('ibis-framework', 'zope-interface')
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed_package(name: str, scope: str) -> Component:
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:  # of an extra that the build does not take
        return _package(name, "", "") | {"scope": scope}
    return _package(name, str(told["Version"]), str(told.get("License-Expression") or "")) | {"scope": scope}


def _package(name: str, version: str, expression: str, kind: str = "library") -> Component:
    purl = f"pkg:pypi/{name}" + (f"@{version}" if version else "")
    licenses = {"licenses": [{"expression": expression}]} if expression else {}
    return {"type": kind, "bom-ref": name, "name": name, **({"version": version} if version else {}), "purl": purl, **licenses}


def _file(name: str, data: bytes) -> Component:
    return {"type": "file", "bom-ref": name, "name": name, "hashes": [_hash(hashlib.sha256(data).hexdigest())]}


def _hash(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


if __name__ == "__main__":
    main(sys.argv[1:])
