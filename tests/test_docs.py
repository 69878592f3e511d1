"""The documentation is under test: what comes from the code is fresh, links lead somewhere, commands exist."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ullage.cli import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def generator():
    return script("generate")


def test_pages_printed_from_the_code_are_fresh():
    assert generator().stale() == [], "run `make docs`"


@pytest.mark.full
@pytest.mark.parametrize("name", ["sass.md", "stalls.md", "images/stalls.svg"])
def test_pages_with_machine_code_are_fresh(name):
    pytest.importorskip("cuda.bindings.nvrtc", reason="the compiler (pip install 'ullage[kernels]')")
    assert generator().SLOW[name]() == (ROOT / "docs" / name).read_text(encoding="utf-8"), "run `make docs`"


def test_the_command_pages_do_not_depend_on_what_was_asked_before():
    CliRunner().invoke(cli, ["gpus", "--help"])  # click keeps a command's help option from here on
    for words in (["trace", "--help"], ["trace", "compare", "--help"]):
        command = cli.get_command(click.Context(cli), words[0])
        assert command is not None
        CliRunner().invoke(command, words[1:])  # asked outside the command line, it has no -h
    assert generator().PAGES["commands.md"]() == (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def consoles(page, runs):
    return [
        runs.block(found[2]) for found in runs.BLOCK.finditer((ROOT / "docs" / page).read_text(encoding="utf-8")) if found[1] == "console"
    ]


def test_the_simulated_run_of_the_example_is_what_its_commands_say(tmp_path, monkeypatch):
    runs = script("recorded_runs")
    (shown,) = [block for block in consoles("examples/trace-training.md", runs) if block.commands == ("ullage trace job --window steps",)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for line in (runs.SAME_RUN["ullage trace job"], shown.commands[0]):
        said = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False).stdout
    assert runs.paragraphs_shown(said, shown.lines) == list(shown.lines), "run docs/recorded_runs.py"


def test_every_recorded_run_is_of_a_program_or_a_folder_that_the_script_makes(tmp_path):
    runs = script("recorded_runs")
    for page in runs.PAGES:
        runs.write_programs(page, (ROOT / "docs" / page).read_text(encoding="utf-8"), tmp_path)
        made = {path.name for path in tmp_path.iterdir()} | {"steps", "before", "after", "job", "kept", "program", "program.c"}
        for shown in consoles(page, runs):
            for command in shown.commands:
                files = [word.removeprefix("./") for word in command.partition("#")[0].split() if re.search(r"\.(c|py)$|^\./", word)]
                assert set(files) <= made, command


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


KNOWN = "fleet|flops|audit|gpus|metrics|simulate|store|demo|trace|gemm|sass|bench|waterfall|run|sample|top|cupti"


def shown_commands() -> list[str]:
    lines = []
    for page in PAGES:
        for line in re.findall(rf"^\s*(?:\$ )?(ullage (?:{KNOWN})\b.*)$", page.read_text(encoding="utf-8"), re.M):
            lines.append(re.split(r"  | #| \| | && ", line)[0].strip())
    return sorted({line for line in lines if "…" not in line and "[OPTIONS]" not in line and "`" not in line})


@pytest.mark.parametrize("line", shown_commands())
def test_every_command_that_is_shown_exists_with_its_options(line):
    words = shlex.split(line)
    words = words[: words.index("--")] if "--" in words else words  # what follows are another program's options
    command = cli.get_command(click.Context(cli), words[1])
    assert command is not None
    parts = command.list_commands(click.Context(command)) if hasattr(command, "list_commands") else []
    if len(words) > 2 and (words[2] in parts or (isinstance(command, click.Group) and not words[2].startswith("-"))):
        command = command.get_command(click.Context(command), words[2])
        assert command is not None
    options = {name for parameter in command.params for name in parameter.opts} | {"-h", "--help"}
    assert {word.split("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)} <= options


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = (ROOT / "docs" / "dependencies.md").read_text().lower().replace("-", "").replace(" ", "")
    for requirement in project["dependencies"]:
        name = re.split(r"[\[><=]", requirement)[0].replace("-framework", "").replace("-", "")
        assert name in told, name


def test_the_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text and "make test" in text


def named_functions() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    journey = text.partition("## One number's journey")[2].partition("\n## ")[0]
    return sorted(set(re.findall(r"`((?:[a-z_]+\.)+[A-Za-z_]+)`", journey)))


@pytest.mark.parametrize("name", named_functions())
def test_a_number_passes_only_where_the_journey_says(name):
    module, _, member = name.rpartition(".")
    try:
        importlib.import_module(f"ullage.{name}")
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(f"ullage.{module}"), member), name


ROOMS = sorted(folder.name for folder in (ROOT / "src" / "ullage").iterdir() if (folder / "__init__.py").exists())


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_stands_in_the_plan(room):
    assert f"`{room}/`" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_plan_names_no_file_that_is_not_there():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Rooms")[2].partition("\n## ")[0]
    for row in text.splitlines():
        cells = row.split("|")
        if len(cells) == 5 and "`" in cells[3]:
            first = re.findall(r"`([\w/]+\.py)`", cells[3])
            folder = first[0].rpartition("/")[0] if first else ""
            for name in first:  # the ones after the first may be told from its folder on
                places = [ROOT / "src" / "ullage" / name, ROOT / "src" / "ullage" / folder / name, ROOT / name]
                assert any(place.exists() for place in places), name
