"""The action for GitHub: its shell steps are run as they stand in the file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.traces.trace_command import call, kernel, on_host, profile
from ullage.cli._exit_status import ANSWERED, ERROR, PARTIAL, UNDER_LIMIT

ACTION = Path(__file__).parents[1] / "action" / "action.yml"
TEXT = ACTION.read_text(encoding="utf-8")


def steps() -> dict[str, str]:
    """The steps of the action by name, each a piece of its file."""
    pieces = re.split(r"^    - name: ", TEXT[TEXT.index("  steps:") :], flags=re.MULTILINE)[1:]
    return {piece.split("\n", 1)[0]: piece for piece in pieces}


def script(step: str) -> str:
    return textwrap.dedent(steps()[step].split("      run: |\n", 1)[1])


def variables(step: str, given: dict[str, str]) -> dict[str, str]:
    """The environment of a step: what is given, else the input's default."""
    found = {}
    for name, value in re.findall(r"^        ([A-Z_]+): \$\{\{ inputs\.([\w-]+) \}\}$", steps()[step], re.MULTILINE):
        default = re.search(rf"^  {value}:\n(?:    .*\n)*?    default: \"(.*)\"$", TEXT, re.MULTILINE)
        found[name] = given.get(value, default[1] if default else "")
    return found


def run(step: str, folder: Path, **given: str) -> tuple[int, str, dict[str, str]]:
    """Run a step as a runner does; return its status, the summary and the outputs."""
    files = {name: folder / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    for file in files.values():
        file.write_text("")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {name: str(file) for name, file in files.items()} | {"RUNNER_TEMP": str(folder), "PATH": path}
    env |= variables(step, {name.replace("_", "-"): value for name, value in given.items()}) | {"OWN": str(ACTION.parent)}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script(step)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return done.returncode, files["GITHUB_STEP_SUMMARY"].read_text(), outputs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile whose device is busy for 150 of 200 us, one for 100 of 200 us, in a name with a space, and a cut one."""
    folder = tmp_path_factory.mktemp("runs")
    for name, long in (("main.json", 150.0), ("a change.json", 100.0)):
        profile(folder, name, events=(call(0.0, 10.0), kernel(20.0, long), on_host(0.0, 200.0, "aten::mm", cat="cpu_op")))
    whole = (folder / "main.json").read_text()
    (folder / "cut.json").write_text(whole[: whole.rindex("{", 0, whole.rindex("}"))])
    return folder


def test_a_change_that_keeps_the_limit_passes_and_the_answer_stands_in_the_summary(runs: Path) -> None:
    status, summary, outputs = run("Ask", runs, question="trace compare main.json 'a change.json' --fail-under 0.6", page="page.html")
    assert (status, outputs["status"]) == (ANSWERED, "0") and "passed: parallel efficiency" in summary
    assert Path(outputs["answer"]).read_text() == summary and "<html" in (runs / "page.html").read_text()


def test_a_change_that_falls_under_the_limit_fails_with_its_own_status(runs: Path) -> None:
    status, summary, outputs = run("Ask", runs, question="trace compare main.json 'a change.json' --fail-under 0.7", allow_partial="true")
    assert (status, outputs["status"]) == (UNDER_LIMIT, str(UNDER_LIMIT)) and "failed: parallel efficiency" in summary


def test_an_error_is_shown_and_nothing_in_a_question_is_run(runs: Path) -> None:
    status, summary, outputs = run("Ask", runs, question="trace compare main.json $(touch${IFS}ran) ; touch ran", page="none.html")
    assert status not in (ANSWERED, PARTIAL) and summary.startswith("```\n") and "answer" not in outputs
    assert not (runs / "ran").exists() and not (runs / "none.html").exists()


@pytest.mark.parametrize(("allowed", "status"), [("false", PARTIAL), ("true", ANSWERED)])
def test_a_partial_answer_fails_unless_it_is_allowed(runs: Path, allowed: str, status: int) -> None:
    found, summary, outputs = run("Ask", runs, question="trace compare main.json cut.json", allow_partial=allowed)
    assert (found, outputs["status"]) == (status, str(PARTIAL)) and summary


def test_what_is_installed_already_is_left_alone_and_what_can_not_be_installed_fails(runs: Path) -> None:
    assert run("Install", runs, package="none")[0] == ANSWERED
    assert run("Install", runs, package="./there-is-no-such-folder")[0] == ERROR


def test_inputs_reach_the_shell_by_the_environment_alone() -> None:
    assert list(steps()) == ["Install", "Ask"] and not any("${{" in script(name) for name in steps())


# What GitHub takes for the metadata of a composite action: https://docs.github.com/actions/reference/metadata-syntax
_WORDS = {"type": "string", "minLength": 1}
_SCHEMA = {
    "type": "object",
    "required": ["name", "description", "runs"],
    "additionalProperties": False,
    "properties": {
        "name": _WORDS,
        "description": _WORDS,
        "author": _WORDS,
        "branding": {"type": "object"},
        "inputs": {
            "additionalProperties": {
                "type": "object",
                "required": ["description"],
                "additionalProperties": False,
                "properties": {
                    "description": _WORDS,
                    "required": {"type": "boolean"},
                    "default": {"type": "string"},
                    "deprecationMessage": _WORDS,
                },
            }
        },
        "outputs": {
            "additionalProperties": {
                "type": "object",
                "required": ["description", "value"],
                "additionalProperties": False,
                "properties": {"description": _WORDS, "value": _WORDS},
            }
        },
        "runs": {
            "type": "object",
            "required": ["using", "steps"],
            "additionalProperties": False,
            "properties": {
                "using": {"const": "composite"},
                "steps": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "oneOf": [{"required": ["run", "shell"]}, {"required": ["uses"]}],
                        "properties": {
                            **dict.fromkeys(("run", "uses", "shell", "name", "id", "if", "working-directory"), _WORDS),
                            "env": {"additionalProperties": {"type": ["string", "number", "boolean"]}},
                            "with": {"type": "object"},
                            "continue-on-error": {"type": ["boolean", "string"]},
                        },
                    },
                },
            },
        },
    },
}


def test_the_action_is_what_github_takes_for_one() -> None:
    yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
    action = yaml.safe_load(TEXT)
    jsonschema.validate(action, _SCHEMA)
    identifiers = {step["id"] for step in action["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"inputs\.([\w-]+)", TEXT)) == set(action["inputs"])
    assert set(re.findall(r"steps\.([\w-]+)\.outputs", TEXT)) <= identifiers
    written = {name for step in action["runs"]["steps"] for name in re.findall(r'echo "([\w-]+)=', step.get("run", ""))}
    assert set(re.findall(r"steps\.[\w-]+\.outputs\.([\w-]+)", TEXT)) <= written
    # what a pull request wrote reaches a shell as a variable, and never as a part of its script
    assert not any("${{" in step.get("run", "") for step in action["runs"]["steps"])
