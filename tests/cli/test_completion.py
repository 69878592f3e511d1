"""What a shell completes words of `ullage` with: asked as each shell's script asks, and by the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ullage.asking.question import QUESTIONS
from ullage.cli import cli
from ullage.cli._completing import SHELL_CLASSES, register_shells
from ullage.cli._suggested_values import suggestions


def completed(*words: str, shell: str = "bash", cut: tuple[str, ...] | None = None) -> list[str]:
    """What completes the last of some words; `cut` are the words as the shell cuts them, where those are others."""
    register_shells()
    given = ["ullage", *(cut or words)]
    asked = {"_ULLAGE_COMPLETE": f"{shell}_complete", "COMP_WORDS": "\n".join(given), "COMP_CWORD": str(len(given) - 1)}
    said = CliRunner().invoke(cli, prog_name="ullage", env=asked | ({"COMP_CWORD": given[-1]} if shell == "fish" else {}))
    assert said.exit_code == 0 and said.stderr == "", said.output
    return said.stdout.strip("\n").split("\n")


def test_a_command_is_completed_by_its_first_letters() -> None:
    assert completed("fl") == ["plain,fleet", "plain,flops", "plain,fleet-map"]
    assert "plain,doctor" in completed("")


def test_an_option_and_each_of_its_values_are_completed() -> None:
    assert completed("fleet", "--inv") == ["plain,--inventory"]
    assert completed("simulate", "--format", "p") == ["plain,parquet", "plain,prometheus"]
    assert completed("fleet", "store/", "--by", "h") == ["plain,host", "plain,hour"]
    assert completed("schema", "flee") == ["plain,fleet", "plain,fleet-map"]
    assert completed("flops", "--as", "nem") == ["plain,nemo"]


def test_where_files_are_taken_the_shell_completes_them() -> None:
    assert completed("fleet", "scr") == ["file,scr"]
    assert completed("trace", "rank") == ["file,rank"]
    assert completed("run", "--", "train") == ["file,train"]


def test_the_first_word_of_a_command_with_parts_is_a_part_or_a_file() -> None:
    assert completed("trace", "com") == ["plain,compare", "file,com"]
    assert completed("trace", "rank0.json", "com") == ["file,com"]
    assert completed("trace", "compare", "--mod") == ["plain,--mode"]
    assert completed("audit", "p") == ["plain,peaks"]


def test_an_answer_is_written_in_a_form_that_its_name_gets_from_tab() -> None:
    assert "plain,report.html" in completed("fleet", "store/", "--out", "report.")
    assert completed("fleet", "store/", "--out", "report.js") == ["plain,report.json"]
    assert completed("fleet", "store/", "--out", "rep") == ["file,rep"]


def test_bash_gets_what_it_cut_from_a_word_and_names_with_spaces_quoted() -> None:
    assert completed("gpus", r"H100\ SXM5\ 6") == [r"plain,H100\ SXM5\ 64GB"]
    assert completed("gpus", "'H100 SXM5 6") == ["plain,H100 SXM5 64GB"]  # bash closes the quote that was opened
    cut = ("gpus", "x", "--precision", "=", "bf")
    assert completed(cut=cut) == ["plain,bf16"]
    assert completed(cut=(*cut[:3], "=")) == completed("gpus", "x", "--precision", "")


def test_zsh_and_fish_get_the_whole_word_which_they_quote_themselves() -> None:
    assert completed("gpus", "x", "--precision=bf", shell="zsh") == ["plain", "--precision=bf16", "_"]
    assert completed("gpus", "--precision=bf", shell="fish") == ["plain,--precision=bf16"]
    assert completed("doc", shell="fish")[0].startswith("plain,doctor\tWhat does Ullage find here, and what")


@pytest.mark.parametrize("words", [("fleet", "--nothing", ""), ("audit", "nothing", "-"), ("job", "--since", "x")])
def test_where_nothing_fits_a_shell_is_told_nothing(words: tuple[str, ...]) -> None:
    assert completed(*words) in ([""], ["file,"], ["file,x"])


def test_every_value_that_is_named_to_shells_comes_from_a_list() -> None:
    named = {field.suggested for question in QUESTIONS.values() for field in question.fields if field.suggested}
    assert len(named) > 8
    for place in named:
        names = list(suggestions(place))
        assert names and all(isinstance(name, str) and "\n" not in name for name in names), place


def test_loading_nothing_that_commands_need_completes_a_command() -> None:
    watched = "from ullage.cli import main\nimport sys, atexit\nsys.argv[0] = 'ullage'\n"
    watched += "atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\nmain()"
    asked = {"_ULLAGE_COMPLETE": "bash_complete", "COMP_WORDS": "ullage\nfl", "COMP_CWORD": "1"}
    said = subprocess.run([sys.executable, "-c", watched], env=asked, capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 0 and not {"pyarrow", "numpy", "duckdb", "ullage.questions.fleet"} & set(said.stderr.split())


ASKED_IN = {
    "bash": 'eval "$(ullage completion bash)"; COMP_WORDS=(ullage gpus x -p b); COMP_CWORD=4\n'
    '_ullage_completion ullage; echo "${COMPREPLY[@]}"',
    "zsh": 'compdef() { : }; eval "$(ullage completion zsh)"; compadd() { print -- $completions }\n'
    "words=(ullage gpus x -p b); CURRENT=5; _ullage_completion",
    "fish": 'ullage completion fish | source; complete -C "ullage gpus x -p b"',
}


@pytest.mark.parametrize("shell", SHELL_CLASSES)
def test_a_shell_completes_a_value(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    quiet = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
    words, there = [shell, quiet, "-c", ASKED_IN[shell]], {"PATH": path, "HOME": "/nonexistent"}
    said = subprocess.run(words, env=there, capture_output=True, text=True, check=False, timeout=60)
    assert (said.stdout.split(), said.stderr) == (["bf16"], "")
