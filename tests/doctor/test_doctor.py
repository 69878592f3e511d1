"""`ullage doctor`: what samples are good for, counted row by row; what a machine lacks; a place that is partial, hostile or not there."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import ibis
import jsonschema
import pyarrow as pa
import pytest
from click.testing import CliRunner

import ullage
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.field import FIELDS
from ullage.questions.doctor import doctor
from ullage.render.documents import schema
from ullage.reports.doctor.doctor import EXTRAS, machine_parts
from ullage.reports.doctor.fields import CAPABILITIES, capability_shares, dcgm_name
from ullage.sources.naming.dcgm_names import ON_BY_DEFAULT
from ullage.sources.naming.names import known


def counted(rows: list[dict[str, Any]]) -> tuple[dict[str, tuple[int, float]], int, int]:
    """Return of each capability on how many GPUs it is and for which share of the time, counted row by row; GPUs with jobs; all GPUs."""
    found = {}
    time = sum(row["span_ms"] for row in rows)
    for one in CAPABILITIES:
        there = [row for row in rows if any(all(row[field] is not None for field in fields) for fields in one.needs)]
        found[one.name] = (len({row["gpu"] for row in there}), sum(row["span_ms"] for row in there) / time)
    return found, len({row["gpu"] for row in rows if row["job"] is not None}), len({row["gpu"] for row in rows})


@pytest.mark.parametrize("seed", range(20))
def test_what_samples_are_good_for_is_what_one_counts_by_hand(seed: int) -> None:
    chance = random.Random(seed)
    rows = []
    for gpu in range(chance.randint(1, 6)):
        likely = {field: chance.choice([0.0, 0.3, 1.0]) for field in [*FIELDS, "job"]}
        for _ in range(chance.randint(1, 30)):
            row = {field: 1.0 if chance.random() < likely[field] else None for field in FIELDS}
            job = "7" if chance.random() < likely["job"] else None
            rows.append({"gpu": f"GPU-{gpu}", "job": job, "span_ms": chance.choice([1000, 15_000, 60_000]), **row})
    types = pa.schema([("gpu", pa.string()), ("job", pa.string()), ("span_ms", pa.int64()), *((field, pa.float64()) for field in FIELDS)])
    shares, jobs_on = capability_shares(ibis.memtable(pa.Table.from_pylist(rows, schema=types)))
    expected, with_jobs, gpus = counted(rows)
    assert jobs_on == with_jobs
    for share in shares:
        assert (share.gpus, share.of) == (expected[share.capability.name][0], gpus)
        assert share.time == pytest.approx(expected[share.capability.name][1], rel=1e-12)
        assert bool(share.missing) == (share.gpus < gpus)  # one GPU without it is enough to say so


def test_the_fields_that_it_names_are_read_under_these_names() -> None:
    for one in CAPABILITIES:
        for fields in one.needs:
            for field in fields:
                alias = known(dcgm_name(field))
                assert dcgm_name(field).startswith("DCGM_FI_") and alias is not None and alias.field == field
    assert set(FIELDS) >= ON_BY_DEFAULT


def run(*words: object) -> Any:
    return CliRunner().invoke(cli, ["doctor", *map(str, words)])


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("doctor")
    words = ["simulate", "--gpus", "8", "--hours", "0.2", "--faults", "none", "--format", "exposition", "--out", str(place / "made")]
    assert CliRunner().invoke(cli, words).exit_code == 0
    return place / "made"


def test_it_says_what_to_switch_on(scrapes: Path, tmp_path: Path) -> None:
    lines = [path.read_text() for path in sorted(scrapes.rglob("*.prom"))] or [path.read_text() for path in sorted(scrapes.rglob("*.txt"))]
    poorer = tmp_path / "poorer"
    poorer.mkdir()
    for number, text in enumerate(lines):
        kept = [line for line in text.splitlines() if "DCGM_FI_PROF_SM_ACTIVE" not in line]
        (poorer / f"{number}.prom").write_text("\n".join(kept) + "\n")
    report = doctor(str(poorer))
    [place] = report.places
    by_name = {share.capability.name: share for share in place.shares}
    assert place.gpus == 8 and by_name["OFU"].gpus == 8 and by_name["OFU"].missing == ()
    assert by_name["SM fill"].gpus == 0 and by_name["SM fill"].missing == ("DCGM_FI_PROF_SM_ACTIVE",) and by_name["SM fill"].off_by_default
    said = run(poorer)
    assert said.exit_code == 0 and "DCGM_FI_PROF_SM_ACTIVE" in said.output and said.output.startswith("OFU can be told of 8 of 8 GPUs; ")


def test_json_follows_its_schema_with_and_without_a_place(scrapes: Path) -> None:
    for words in ([], [scrapes]):
        data = json.loads(run(*words, "--json").output)
        jsonschema.validate(data, schema("doctor"))
        assert data["schema"] == "ullage.doctor/1" and data["complete"] and len(data["places"]) == len(words)


def test_parts_of_the_machine() -> None:
    parts = {part.name: part for part in machine_parts()}
    assert parts["ullage[otf2]"].there and not parts["ullage[otf2]"].how
    assert all(part.there or part.how or not part.name.startswith("ullage[") for part in parts.values())
    assert {f"ullage[{name}]" for name in EXTRAS} < set(parts)


def test_an_extra_that_is_not_installed_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata as metadata

    version = metadata.version

    def without(name: str) -> str:
        if name == "otf2":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("ullage.reports.doctor.doctor.importlib.metadata.version", without)
    [part] = [part for part in machine_parts() if part.name == "ullage[otf2]"]
    assert (part.there, part.known, part.how) == (False, "lacks otf2", "pip install 'ullage[otf2]'")


def test_places_that_are_not_there_partial_or_hostile(tmp_path: Path, scrapes: Path) -> None:
    with pytest.raises(UllageError, match="nowhere"):
        doctor(str(tmp_path / "nowhere"))
    hostile = tmp_path / "\x1b[31m<script>.prom"
    hostile.write_text('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-<script>",Hostname="h"} 5\n')
    said = run(hostile)
    assert said.exit_code == 0 and "\x1b" not in said.output and "OFU can be told of 0 of 1 GPU" in said.output
    assert "<script>" not in ullage.questions.doctor.doctor(str(hostile))._repr_html_()
