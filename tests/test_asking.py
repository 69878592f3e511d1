"""A question is said once: the command's options and the function's arguments come from the same dataclass."""

from __future__ import annotations

import gzip
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import click
import pytest

import ullage
from tests.command_line import ask
from ullage.asking import (
    Askable,
    askable,
    asked,
    question_of,
    read_headers,
    read_moment,
    read_positive_span,
    read_prices,
    read_share,
    read_span,
    step,
    traces,
)
from ullage.asking.question import QUESTIONS
from ullage.asking.telemetry import read_engine, read_interval
from ullage.cli import cli
from ullage.cli._names import answers_itself, is_group, question_names
from ullage.errors import UllageError
from ullage.questions.audit.mfu import read_share_or_log
from ullage.questions.cupti.map import read_values
from ullage.questions.gemm import read_cluster, read_tile
from ullage.questions.rules import read_interval_of_rules, read_metric_names, read_server
from ullage.questions.sample import read_address
from ullage.questions.simulate.simulate import read_model_shares
from ullage.questions.trace.compare import read_limits
from ullage.questions.trace.trace import read_ranks


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


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Numbers."""

    many: tuple[int, ...] = asked("Whole numbers.", (), repeated=True)
    share: float = asked("A number.", 1.0, above=0, most=2)
    count: int | None = asked("A whole number.", least=3)
    way: Literal["all", "last"] = asked("Which.", "all")
    place: str = asked("Where.", argument=True, required=True)
    whole: bool = asked("All of it.", False)


def numbers(**given: object) -> Numbers:
    return question_of(Numbers, {"place": "here", **given}, noun="an example")


def test_texts_of_numbers_are_numbers() -> None:
    assert numbers(many=["1", 2], share="0.5", count="3", place=Path("there")) == Numbers(many=(1, 2), share=0.5, count=3, place="there")
    assert numbers(many="7").many == numbers(many=7).many == (7,)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"share": 0}, "share must be more than 0 and at most 2, not 0"),
        ({"share": 2.001}, "share must be more than 0 and at most 2, not 2.001"),
        ({"share": float("nan")}, "share must be more than 0 and at most 2, not nan"),
        ({"share": "x"}, "share must be a number, not 'x'"),
        ({"count": 2}, "count must be 3 or more, not 2"),
        ({"count": "3.5"}, "count must be a whole number, not '3.5'"),
        ({"way": "first"}, "way 'first' is not one of all, last"),
        ({"whole": "yes"}, "whole is True or False, not 'yes'"),
        ({"place": None}, "an example needs place: Where."),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(UllageError, match=re.escape(says)):
        numbers(**given)


def test_bounds_belong_to_what_may_be() -> None:
    assert numbers(share=2, count=3) == Numbers(share=2, count=3, place="here")
    assert numbers(share=1e-9).share == 1e-9


@pytest.mark.parametrize("text", ["0", "0.0009"])
def test_a_span_below_a_millisecond_is_too_short(text: str) -> None:
    with pytest.raises(UllageError, match=f"--gap {text} is too short"):
        question(gap=text)
    assert question(gap="0.001").gap == 0.001


def test_fields_of_its_own_come_before_those_that_questions_share() -> None:
    assert [field.name for field in askable(Example)] == ["prices", "headers", "gap", "whole", "since"]
    assert [field.flag for field in askable(Example)] == ["--price", "--header", "--gap", "--whole", "--since"]


def all_names() -> list[str]:
    """Return the names of all questions, and of those in folders, as their commands are called."""
    plain = [name for name in question_names() if not is_group(name)]
    groups = [name for name in question_names() if is_group(name)]
    own = [name for name in groups if answers_itself(name)]
    return sorted([*plain, *own, *(f"{group} {part}" for group in groups for part in question_names(group))])


def command_of(name: str) -> click.Command:
    command: click.Command = cli
    for word in name.split():
        found = command.get_command(click.Context(command), word)  # type: ignore[attr-defined]
        assert found is not None
        command = found
    return command


def function_of(name: str) -> Callable[..., object]:
    function: Callable[..., object] = getattr(import_module(QUESTIONS.module_of(name)), QUESTIONS[name].function_name)
    return function


def test_the_registered_questions_are_the_modules_that_become_commands() -> None:
    assert sorted(QUESTIONS) == all_names()


@pytest.mark.parametrize("name", all_names())
def test_a_command_and_its_function_ask_the_same(name: str) -> None:
    fields, function = askable(QUESTIONS[name].asked), function_of(name)
    options = {param.name for param in command_of(name).params}
    own = {field.name for field in fields}
    where = {"as_json"} if "out" in own else {"out", "as_json", "only"}  # the answer goes: that is the command's
    assert options - where == own and where <= options
    parameters = set(inspect.signature(function).parameters) - {"progress"}
    assert parameters == {field.name for field in fields if not field.display}
    assert all(field.help in (function.__doc__ or "") for field in fields if not field.display)


@pytest.mark.parametrize("name", sorted(set(ullage.__all__) & {QUESTIONS[name].function_name for name in all_names()}))
def test_a_function_of_the_package_is_the_questions(name: str) -> None:
    assert name in {question.function_name for question in QUESTIONS.values() if function_of(question.name) is getattr(ullage, name)}


TEXTS: dict[object, tuple[Any, Any]] = {  # for each way to read a text: a text and what it means
    read_moment: ("2026-08-10", 1_786_320_000_000),
    read_span: ("15m", 900.0),
    read_positive_span: ("15m", 900.0),
    read_prices: (("2.5", "A100=1"), {"": 2.5, "A100": 1.0}),
    read_headers: (("A: b",), {"A": "b"}),
    read_values: (("sm__cycles_active.sum=1e6",), {"sm__cycles_active.sum": 1e6}),
    read_share: ("54%", 0.54),
    read_share_or_log: ("54%", 0.54),
    step.read_numbers: ("512,1024", (512, 1024)),
    step.read_two_or_three: ("21,60,104", (21, 60, 104)),
    step.read_number_or_numbers: ("4096", 4096),
    step.read_pairs: (("64,64", "32,16"), ((64, 64), (32, 16))),
    step.read_triples: (("1,32,32",), ((1, 32, 32),)),
    step.read_words: ("q_proj,v_proj", ("q_proj", "v_proj")),
    step.read_recompute: ("attention.scores", ("attention.scores",)),
    step.read_precisions: (("bf16", "mlp=fp8"), {"*": "bf16", "mlp": "fp8"}),
    step.read_layout: ("tp=4,pp=2", {"tp": 4, "pp": 2}),
    traces.read_gibibytes: ("0.5", 2**29),
    traces.read_gigabytes_a_second: ("450", 450e9),
    read_ranks: (("a.json=3",), {"a.json": 3}),
    read_limits: (("0.95", "speed=0.9"), {"": 0.95, "speed": 0.9}),
    read_tile: ("256x128x64", (256, 128, 64)),
    read_cluster: ("2x1", (2, 1)),
    read_model_shares: (("H100=0.75", "A100"), (("H100", 0.75), ("A100", 1.0))),
    read_interval: ("15s", 15.0),
    read_interval_of_rules: ("15s", 15.0),
    read_server: ("http://prometheus:9090", "http://prometheus:9090"),
    read_metric_names: (("sm_clock=my_sm_clock_hertz",), {"sm_clock": "my_sm_clock_hertz"}),
    read_engine: ("sc://spark:15002", "sc://spark:15002"),
    traces.read_spark: ("spark://head:7077", "spark://head:7077"),
    read_address: ("9400", ("127.0.0.1", 9400)),
    int: ("3", 3),
    float: ("0.5", 0.5),
    str: ("words", "words"),
}


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in all_names() for field in askable(QUESTIONS[name].asked)])
def test_a_text_and_its_value_ask_the_same(name: str, field: Askable) -> None:
    if field.kind is bool:
        assert field.value(True, 0) is True
        return
    text, value = (field.choices[-1],) * 2 if field.choices else TEXTS[field.read or field.kind]
    if field.kind is int and field.least is not None and field.least > value:
        text, value = str(int(field.least)), int(field.least)
    if field.repeated and isinstance(value, str | int | float):
        text, value = (text, text), (value, value)
    assert field.value(text, 0) == field.value(value, 0) == value


@pytest.mark.parametrize("name", all_names())
def test_help_lists_first_the_ten_or_so_that_matter(name: str) -> None:
    brief = ask(*name.split(), "--help").out
    listed = [line.split()[0] for line in brief.partition("\nOptions:\n")[2].splitlines() if line.startswith("  -")]
    assert len(listed) <= 20 and "More options" not in brief and {"--out", "--json", "-h,"} <= set(listed)
    first, _, more = ask(*name.split(), "--help-all" if "--help-all" in listed else "--help").out.partition("\nMore options:\n")
    assert bool(more) == ("--help-all" in listed)
    listed = [line.split()[0] for line in first.partition("\nOptions:\n")[2].splitlines() if line.startswith("  -")]
    assert len(listed) <= 16
    assert {"--out", "--json", "-h,"} <= set(listed)
    minor = {(field.short and f"{field.short},") or field.flag for field in askable(QUESTIONS[name].asked) if field.minor}
    shown = {line.split()[0] for line in more.partition("\n\n")[0].splitlines() if line.startswith("  -")}
    assert shown - {"--only"} == minor and ("--only" in shown) == (bool(minor) and "--only" in first + more)


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


def test_samples_are_read_with_the_words_of_a_fleets_report(tmp_path: Path) -> None:
    ask("simulate", "--gpus", 8, "--hours", 0.2, "--out", tmp_path / "s", "--faults", "none")
    place = tmp_path / "s" / "samples"
    times = sorted({row["time"] for batch in ullage.read_samples(place) for row in batch.to_pylist()})
    middle = times[len(times) // 2]
    written = middle.isoformat()
    for since in (written, round(middle.timestamp() * 1000)):
        later = {row["time"] for batch in ullage.read_samples(place, since=since) for row in batch.to_pylist()}
        assert min(later) == middle
    with pytest.raises(UllageError, match="reading samples has no 'hours'"):
        ullage.read_samples(place, hours=1)


def test_a_folder_that_can_be_read_in_part_is_refused_under_strict(tmp_path: Path) -> None:
    ask("simulate", "--gpus", 8, "--hours", 0.2, "--out", tmp_path / "s", "--format", "csv")
    (whole,) = (tmp_path / "s" / "samples").glob("*.csv*")
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "a.csv").write_bytes(whole.read_bytes())
    assert list(ullage.read_samples(tmp_path / "both", strict=True))
    (tmp_path / "both" / "b.csv.gz").write_bytes(gzip.compress(whole.read_bytes())[:-2000])
    assert list(ullage.read_samples(tmp_path / "both"))
    with pytest.raises(UllageError, match="only a part could be read"):
        list(ullage.read_samples(tmp_path / "both", strict=True))
