"""A question is said once: the command's options and the function's arguments come from the same dataclass."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

import ullage
from tests.command_line import ask
from ullage.asking import askable, asked, question_of, read_headers, read_moment, read_positive_span, read_prices
from ullage.cli import cli
from ullage.cli._question_command import question_names
from ullage.errors import UllageError
from ullage.questions.question import QUESTIONS


@dataclass(frozen=True, kw_only=True)
class Shared:
    since: int | None = asked("Start.", read=read_moment)


@dataclass(frozen=True, kw_only=True)
class Example(Shared):
    prices: dict[str, float] = asked("Money.", {}, flag="--price", read=read_prices, repeated=True)
    headers: dict[str, str] = asked("HTTP header.", {}, flag="--header", read=read_headers, repeated=True)
    gap: float | None = asked("Gap.", read=read_positive_span)
    whole: bool = asked("All of it.", False)


def question(**given: object) -> Example:
    return question_of(Example, given, noun="an example", now=7200)


def test_texts_are_read_and_values_are_taken_as_they_are() -> None:
    assert question(since="1h").since == 3_600_000  # an hour before 7,200 s
    assert question(since=5).since == 5
    assert question(prices=("2.5", "A100=1")).prices == question(prices={"": 2.5, "A100": 1.0}).prices == {"": 2.5, "A100": 1.0}
    assert question(prices="2.5").prices == {"": 2.5}
    assert question(headers=["A: b:c"]).headers == {"A": "b:c"}
    assert question(gap="2m").gap == 120.0
    assert question(gap=120).gap == 120


def test_what_is_not_given_is_the_default() -> None:
    assert question() == question(since=None, prices=None, gap=None, whole=None) == Example()
    assert question().prices is not question().prices


def test_an_unknown_word_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UllageError, match="an example has no 'price'") as refused:
        question(price=1)
    assert "prices" in refused.value.hint


@pytest.mark.parametrize("text", ["0", "0.0009"])
def test_a_span_below_a_millisecond_is_too_short(text: str) -> None:
    with pytest.raises(UllageError, match=f"--gap {text} is too short"):
        question(gap=text)
    assert question(gap="0.001").gap == 0.001


def test_fields_of_its_own_come_before_those_that_questions_share() -> None:
    assert [field.name for field in askable(Example)] == ["prices", "headers", "gap", "whole", "since"]
    assert [field.flag for field in askable(Example)] == ["--price", "--header", "--gap", "--whole", "--since"]


def test_the_registered_questions_are_the_modules_that_become_commands() -> None:
    assert sorted(QUESTIONS) == question_names()


@pytest.mark.parametrize("name", question_names())
def test_a_command_and_its_function_ask_the_same(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    function = getattr(ullage, name)
    assert command is not None
    of_output = {"top", "out", "as_json", "places"}  # where the answer goes is the command's
    options = {param.name for param in command.params} - of_output
    parameters = {parameter.name for parameter in inspect.signature(function).parameters.values()} - {QUESTIONS[name].places, "progress"}
    assert options == parameters == {field.name for field in askable(QUESTIONS[name].asked)} - {QUESTIONS[name].places}
    assert all(field.help in (function.__doc__ or "") for field in askable(QUESTIONS[name].asked) if field.name in options)


@pytest.mark.parametrize("name", question_names())
def test_help_lists_first_the_ten_or_so_that_matter(name: str) -> None:
    first, _, more = ask(name, "--help").out.partition("\nMore options:\n")
    listed = [line.split()[0] for line in first.partition("\nOptions:\n")[2].splitlines() if line.startswith("  -")]
    assert len(listed) <= 15
    assert {"--out", "--json", "-h,"} <= set(listed)
    minor = {field.flag for field in askable(QUESTIONS[name].asked) if field.minor}
    assert minor == {line.split()[0] for line in more.partition("\n\n")[0].splitlines() if line.startswith("  -")}


def test_a_function_that_is_asked_something_else_says_so() -> None:
    with pytest.raises(UllageError, match="a fleet's report has no 'pirces'"):
        ullage.fleet("scrapes/", pirces=2)


def test_a_function_says_how_far_it_is(tmp_path: Path) -> None:
    ask("simulate", "--gpus", 8, "--hours", 0.2, "--out", tmp_path / "scrapes")
    words: list[str] = []
    report = ullage.fleet(tmp_path / "scrapes", progress=words.append)
    assert report.gpus == 8
    assert "adding up" in words


def test_a_secret_never_reaches_the_command_that_a_report_shows(tmp_path: Path) -> None:
    ask("simulate", "--gpus", 8, "--hours", 0.2, "--out", tmp_path / "scrapes")
    for words in (("--header", "Authorization: Bearer abc"), ("--header=Authorization: Bearer abc",)):
        page = tmp_path / "fleet.html"
        said = ask("fleet", tmp_path / "scrapes", *words, "--out", page)
        assert said.code == 0, said.err
        assert "abc" not in page.read_text()
        assert "…" in page.read_text()
