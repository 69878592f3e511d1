"""Answers stay what they were: every kept answer is asked for again, in every form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.answers import KEPT, answer, differences, kept, within
from tests.golden.canonical import differences_of_json, differences_of_words, lines_of_json, lines_of_page
from tests.golden.questions import LISTS, QUESTIONS, QUICK, TEXT_ALONE
from tests.golden.world import write_world

AGAIN = "repaired on purpose? `python -m tests.golden {name}` keeps the new answer; say in the commit what changed and why"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "world"
    write_world(folder)
    return folder


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.full) for n in QUESTIONS])
def test_a_question_has_the_answer_that_was_kept(name: str, world: Path) -> None:
    changed = differences(kept(name), answer(QUESTIONS[name], world, text_alone=name in TEXT_ALONE))
    assert changed == {}, AGAIN.format(name=name)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_holds_what_was_kept(name: str, world: Path) -> None:
    with within(world):
        now = [*LISTS[name]()]
    assert differences_of_words(kept(name)["text"], now) == [], AGAIN.format(name=name)


def test_an_answer_is_kept_for_each_question_and_no_other() -> None:
    assert {path.stem for path in KEPT.glob("*.txt")} == {*QUESTIONS, *LISTS}


# --- what would be noticed ---


def test_numbers_that_differ_by_rounding_are_the_same_and_by_more_are_not() -> None:
    def compared(before: float, after: float) -> list[str]:
        return differences_of_json(lines_of_json({"a": [before]}), lines_of_json({"a": [after]}))

    assert compared(0.3, 0.3 * (1 + 0.9e-12)) == []
    assert compared(0.3, 0.3 * (1 + 1.1e-12)) == [f"! a.0: 0.3 -> {0.3 * (1 + 1.1e-12)!r}"]
    assert compared(0, 1e-300) != []


def test_what_is_gone_new_or_moved_is_told() -> None:
    before, after = [lines_of_json(one) for one in ({"a": 1, "b": None, "d": 1}, {"a": 1, "c": "x, y", "d": True})]
    assert differences_of_json(before, after) == ["- b = None", "+ c = 'x, y'", "! d: 1 -> True"]
    assert differences_of_words(["OFU   31 %", "of 7"], ["OFU 31 %", "of 8"]) == ["-of 7", "+of 8"]


def test_any_item_of_a_long_list_is_noticed() -> None:
    rows = [{"name": str(n), "share": n / 7, "parts": [n, -n]} for n in range(50)]
    whole = lines_of_json(rows)
    for place in (0, 1, 25, 49):
        changed = [dict(row) for row in rows]
        changed[place]["share"] += 1e-6
        assert differences_of_json(whole, lines_of_json(changed))


def test_a_page_is_its_words_and_tables_without_styles() -> None:
    page = "<style>p{}</style><h1>Ofu &amp; co</h1><p>one <b>two</b></p><table><tr><th>a</th><td>1 %</td></tr></table>"
    assert lines_of_page(page + "<svg><title>bars</title><text>31 %</text></svg>") == [
        "Ofu & co", "one two", "| a | 1 %", "picture: · bars · 31 %",
    ]  # fmt: skip


def test_a_change_in_the_folded_rows_of_a_long_table_is_noticed() -> None:
    def page(last: int) -> list[str]:
        return lines_of_page("<table>" + "".join(f"<tr><td>{n}</td></tr>" for n in [*range(40), last]) + "</table>")

    assert len(page(7)) < 20 and page(7) != page(8)
