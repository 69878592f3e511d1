"""Which GPUs a fix is measured on."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.alerts.test_book import problem
from ullage.reports.fleet.where import FILTER_FIELDS, condition_of, rows_that_fit
from ullage.service.fix_measurement import PlaceOfFix, place_of_fix

NAMES = (None, "ann", "team", "o'brien", "a*", "ab", "east")


def said(place: PlaceOfFix | None) -> tuple[str, str | None] | None:
    return None if place is None else (place.words, None if place.condition is None else str(place.condition))


def test_the_place_is_what_stays_when_a_job_is_over() -> None:
    assert said(place_of_fix(problem(where={"job": "7", "host": "n1", "gpu": "GPU-1"}))) == ("gpu GPU-1", "gpu=GPU-1")
    assert said(place_of_fix(problem(where={"job": "7", "host": "n1"}))) == ("host n1", "host=n1")
    assert said(place_of_fix(problem(where={"host": "n1", "cluster": "east"}))) == ("host n1", "host=n1 and cluster=east")
    assert said(place_of_fix(problem(where={"user": "ann"}))) == ("user ann", "user=ann")
    assert said(place_of_fix(problem(where={}))) == ("the fleet", None)
    assert said(place_of_fix(problem(where={"cluster": "east"}))) == ("the fleet", "cluster=east")


@pytest.mark.parametrize("nobody", ["the operators of the hosts", "unknown"])
def test_of_a_job_whose_owner_nobody_knows_there_is_none(nobody: str) -> None:
    assert place_of_fix(problem(where={"job": "7"}, owner=nobody)) is None
    assert place_of_fix(problem(where={"model": "H100"})) is None


@pytest.mark.parametrize("seed", range(30))
def test_of_a_job_all_rows_of_its_owner_count_whether_a_user_or_a_namespace(seed: int) -> None:
    # `owner` of a job is its user or, where nobody says one, its namespace
    draw = random.Random(seed)
    rows = [{name: draw.choice(NAMES) for name in FILTER_FIELDS} for _ in range(60)]
    table = pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in FILTER_FIELDS]))
    for owner in filter(None, NAMES):
        for cluster in (None, "east"):
            where = {"job": "7"} | ({} if cluster is None else {"cluster": cluster})
            place = place_of_fix(problem(where=where, owner=owner))
            assert place is not None and place.condition is not None
            due = [(row["user"] or row["namespace"]) == owner and cluster in (None, row["cluster"]) for row in rows]
            assert rows_that_fit(condition_of(str(place.condition)), table).tolist() == due
