"""The bill of materials of a wheel: what is in it, what it brings along, and the same file each time."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "sbom.py"
METADATA = """Metadata-Version: 2.4
Name: Ullage
Version: 1.2
License-Expression: Apache-2.0
Requires-Dist: rich>=14
Requires-Dist: ibis-framework[duckdb]>=12
Requires-Dist: tomli; python_version < "3"
Requires-Dist: nothing-of-this-name>=1; extra == "odd"
Requires-Dist: msgspec>=0.20; extra == "odd"
"""


@pytest.fixture(scope="module")
def sbom() -> Any:
    spec = importlib.util.spec_from_file_location("sbom", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sbom"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "ullage-1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("ullage-1.2.dist-info/METADATA", METADATA)
        archive.writestr("ullage/recorder-x86_64.so", b"\x7fELF")
        archive.writestr("ullage/__init__.py", "")
    return tmp_path / "ullage-1.2-py3-none-any.whl"


def test_it_lists_what_is_in_the_wheel_and_what_the_wheel_brings_along(sbom: Any, wheel: Path) -> None:
    told = sbom.bill_of_materials(wheel)
    own = told["metadata"]["component"]
    assert (own["name"], own["version"], own["purl"]) == ("ullage", "1.2", "pkg:pypi/ullage@1.2")
    assert own["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    found = {one["name"]: one for one in told["components"]}
    assert found["ullage/recorder-x86_64.so"]["hashes"][0]["content"] == hashlib.sha256(b"\x7fELF").hexdigest()
    required = {name for name, one in found.items() if one.get("scope") == "required"}
    # of rich, and of Ibis with its extra for DuckDB: what these need themselves
    assert {"rich", "pygments", "markdown-it-py", "mdurl", "ibis-framework", "duckdb", "sqlglot"} <= required
    assert "tomli" not in required and {name for name, one in found.items() if one.get("scope") == "optional"} >= {"msgspec"}
    for name in required:
        assert found[name]["purl"] == f"pkg:pypi/{name}@{metadata.version(name)}"
    assert found["nothing-of-this-name"] == {
        "type": "library",
        "bom-ref": "nothing-of-this-name",
        "name": "nothing-of-this-name",
        "purl": "pkg:pypi/nothing-of-this-name",
        "scope": "optional",
    }


def test_every_reference_leads_to_something_that_is_listed(sbom: Any, wheel: Path) -> None:
    told = sbom.bill_of_materials(wheel)
    known = {told["metadata"]["component"]["bom-ref"], *(one["bom-ref"] for one in told["components"])}
    assert len(known) == len(told["components"]) + 1
    assert {one["ref"] for one in told["dependencies"]} | {name for one in told["dependencies"] for name in one["dependsOn"]} <= known
    [rich] = [one for one in told["dependencies"] if one["ref"] == "rich"]
    assert rich["dependsOn"] == ["markdown-it-py", "pygments"]


def test_one_wheel_gives_one_file(sbom: Any, wheel: Path) -> None:
    sbom.main([str(wheel)])
    first = wheel.with_name("ullage-1.2-py3-none-any.cdx.json").read_bytes()
    sbom.main([str(wheel)])
    assert wheel.with_name("ullage-1.2-py3-none-any.cdx.json").read_bytes() == first
    assert json.loads(first)["specVersion"] == "1.6" and json.loads(first)["serialNumber"].startswith("urn:uuid:")


def test_a_package_that_is_required_and_not_there_is_an_error(sbom: Any, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("ullage-1.2.dist-info/METADATA", METADATA.replace('; extra == "odd"', ""))
    with pytest.raises(metadata.PackageNotFoundError):
        sbom.bill_of_materials(wheel)


def test_it_follows_the_published_schema(sbom: Any, wheel: Path) -> None:
    pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib is not installed: nobody held the file to CycloneDX' schema")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    sbom.main([str(wheel)])
    text = wheel.with_name("ullage-1.2-py3-none-any.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
