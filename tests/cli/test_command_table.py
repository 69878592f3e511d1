"""The grammar of the command line, over all commands: one word for a window, for JSON, for where the answer goes; statuses by one table."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.command_line import ask
from ullage.asking.question import QUESTIONS
from ullage.cli import cli
from ullage.cli._command_table import WINDOWS, CommandRow, all_commands, command_rows, command_table

ROWS = {row.words: row for row in command_rows()}
COMMANDS = dict(all_commands(cli))
# What answers with a text or a service of its own, and has no report
NO_REPORT = {"demo", "open", "completion", "config", "mcp", "schema", "serve"}
FOLDERS = {"demo", "simulate", "simulate job", "simulate trace", "dashboard"}  # what they write are many files


def flags(name: str) -> set[str]:
    return {flag for param in COMMANDS[name].params if isinstance(param, click.Option) for flag in param.opts}


def test_every_question_is_a_command_and_every_command_has_a_row() -> None:
    assert set(QUESTIONS) <= set(ROWS) == set(COMMANDS)
    assert {row.first for row in ROWS.values() if row.subcommand} == {"audit", "bench", "cupti", "simulate", "store", "trace"}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_report_is_json_by_one_switch_and_a_file_by_one_option(row: CommandRow) -> None:
    if row.words in NO_REPORT:
        assert row.json == ""
        return
    # a program's own output goes to stdout, so what is said of it goes to a file
    assert row.json == ("FILE" if row.words == "run" else "switch")
    assert row.out.startswith("FOLDER" if row.words in FOLDERS else "FILE")


def test_what_reads_telemetry_takes_a_window_of_times_and_what_reads_traces_one_of_the_trace() -> None:
    for words, row in ROWS.items():
        found = flags(words)
        assert ("--since" in found) == ("--until" in found), words
        if "--watch" in found:
            assert ("--since", "--until") in row.windows, words
        if "--region" in found and words != "run":
            assert ("--window",) in row.windows, words
    assert {flags for row in ROWS.values() for flags in row.windows} == {*WINDOWS}


def test_statuses_are_those_of_the_table_alone() -> None:
    assert {status for row in ROWS.values() for status in row.statuses} == {3, 4}


def test_options_that_two_commands_share_are_both_switches_or_both_take_a_value() -> None:
    kinds: dict[str, dict[bool, set[str]]] = {}
    for words, command in COMMANDS.items():
        for param in command.params:
            if isinstance(param, click.Option):
                kinds.setdefault(param.opts[0], {}).setdefault(bool(param.is_flag), set()).add(words)
    both = {flag: {True: found[True], False: found[False]} for flag, found in kinds.items() if len(found) == 2}
    # the traces of a model's formula and those of a job; counters that a fleet has and that a program is sampled by
    assert set(both) <= {"--json", "--trace", "--counters"}, both


def test_the_page_of_commands_has_the_table() -> None:
    assert command_table() in (Path(__file__).parents[2] / "docs" / "commands.md").read_text()


@pytest.mark.parametrize("name", ["fleet", "waterfall", "audit mfu", "run"])
def test_help_shows_what_matters_on_one_screen_and_help_all_shows_all(name: str) -> None:
    brief, whole = ask(*name.split(), "--help").out, ask(*name.split(), "--help-all").out
    shown = [line for line in brief.splitlines() if line.startswith("  -")]
    assert len(shown) <= 20 and "More options:" not in brief and "--help-all" in brief
    assert "More options:" in whole and "--help-all" not in whole
    visible = {flag for param in COMMANDS[name].params if isinstance(param, click.Option) for flag in param.opts[:1]}
    assert all(f"  {flag}" in whole or f", {flag}" in whole for flag in visible)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("rules --host x", "'--host-label'"),
        ("rules --gpu-l x", "'--gpu-label'"),
        ("fleet . --pric 2", "'--price', '--prices'"),
        ("waterfall --gp 8", "'--gpu', '--gpus'"),
        ("watch . --job 7", "'--jobs'"),
    ],
)
def test_an_option_that_is_cut_short_says_which_it_could_be_and_no_other(words: str, options: str) -> None:
    said = ask(*words.split())
    suggested = said.err.rpartition("id you mean ")[2].strip().strip("?)(").removeprefix("one of: ")
    assert said.code == 2 and suggested == options, said.err


def test_an_option_that_none_begins_as_says_what_looks_like_it() -> None:
    assert "'--jobs'" in ask("watch", ".", "--jbos", "7").err
