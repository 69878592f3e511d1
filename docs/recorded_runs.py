"""Print anew what programs and commands say on the pages that show recorded runs: `python docs/recorded_runs.py [PAGE…]`.

The programs are the pages' own. Each block of a console is run in a folder that holds them, and what its last command says takes the
place of what the page shows: of its paragraphs those that the page shows, with … for what lies between. No line is put there by hand;
the words around the blocks are, and quote them. Needs a C compiler, Open MPI and PyTorch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
PAGES = ("live-trees.md", "examples/trace-training.md")
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.S)
GAP = "…"
# which program of a page is written under which name before its blocks are run, told by a word that it alone holds
PROGRAMS = {
    "live-trees.md": {"steps.c": "MPI_Barrier", "ranks.py": "# ranks.py"},
    "examples/trace-training.md": {"train.py": "train.py FOLDER"},
}
LAUNCHER = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMP_NUM_THREADS": "1",
}
SAME_RUN = {"ullage trace job": "ullage simulate trace --straggler 1 --out job"}  # what the page says in words, before a block
LONGER = ("step < 10;", "step < 200;")  # "with 200 steps", for a run that is looked at while it goes on


@dataclass(frozen=True)
class Shown:
    """A block of a console: its commands as they are written, and the lines that the page shows of what the last one says."""

    commands: tuple[str, ...]
    lines: tuple[str, ...]


def main(pages: Sequence[str]) -> None:
    """Print the pages anew."""
    for page in pages or PAGES:
        path = FOLDER / page
        with tempfile.TemporaryDirectory() as folder:
            text = path.read_text(encoding="utf-8")
            write_programs(page, text, Path(folder))
            path.write_text(BLOCK.sub(lambda match, work=Path(folder): _anew(match, work), text), encoding="utf-8")


def write_programs(page: str, text: str, folder: Path) -> None:
    """Write the programs of a page into a folder."""
    for name, word in PROGRAMS[page].items():
        code = next(match[2] for match in BLOCK.finditer(text) if match[1] != "console" and word in match[2])
        (folder / name).write_text(code, encoding="utf-8")


def _anew(match: re.Match[str], folder: Path) -> str:
    if match[1] != "console":
        return match[0]
    shown = block(match[2])
    if not shown.lines:
        return match[0]
    said = paragraphs_shown(_said(shown.commands, folder), shown.lines)
    return "```console\n" + "\n".join([*(f"$ {command}" for command in shown.commands), *said]) + "\n```"


def block(text: str) -> Shown:
    """Return a block's commands and what the page shows below them."""
    lines = text.splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return Shown(tuple(commands), tuple(line for line in lines if not line.startswith("$ ")))


def _said(commands: Sequence[str], folder: Path) -> str:
    """Run commands one after another; return what the last one says."""
    before = next((command for word, command in SAME_RUN.items() if word in commands[-1]), "true")
    script = [before, *commands]
    if any(command.partition("#")[0].rstrip().endswith("&") for command in commands):  # looked at while it runs, from a longer program
        longer = (folder / "steps.c").read_text(encoding="utf-8").replace(*LONGER)
        (folder / "longer.c").write_text(longer, encoding="utf-8")
        script = ["mpicc -O2 longer.c -o steps", *(line.partition("#")[0] for line in commands[:-1]), "sleep 12", *commands[-1:]]
    quiet = [
        f"( {line} ) >/dev/null 2>&1" if not line.rstrip().endswith("&") else f"( {line.rstrip(' &')} ) >/dev/null 2>&1 &"
        for line in script[:-1]
    ]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ran = subprocess.run(
        ["bash", "-ec", "\n".join([*quiet, script[-1], "wait"])],
        cwd=folder,
        env=os.environ | LAUNCHER | {"PATH": path, "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where `ullage run` reports, too
        text=True,
        timeout=600,
        check=True,
    )
    return ran.stdout


def paragraphs_shown(said: str, lines: Sequence[str]) -> list[str]:
    """Return the paragraphs of what a command says that stand in `lines`, too, with … for those that do not.

    >>> paragraphs_shown("Efficiency 75 %\\n\\ntable  a\\nx      1\\n\\nother  b\\n\\n2 notes", ["Efficiency 70 %", "…", "3 notes"])
    ['Efficiency 75 %', '…', '2 notes']
    >>> paragraphs_shown("one\\n\\ntwo\\n", ["one", "", "two"])
    ['one', '', 'two']
    """
    subjects = [_subject(paragraph) for paragraph in _paragraphs(lines)]
    wanted, found = set(subjects), list[str]()
    said_lines = said.rstrip().splitlines()
    first = next((place for place, line in enumerate(said_lines) if line.strip() and _subject([line]) == subjects[0]), 0)
    for number, paragraph in enumerate(_paragraphs(said_lines[first:])):  # a program's own words come before the first
        if number == 0 or _subject(paragraph) in wanted:
            found += [*([""] if found and found[-1] != GAP else []), *paragraph]
        elif found[-1] != GAP:
            found.append(GAP)
    return found


def _paragraphs(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines between blank ones and gaps."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip() in ("", GAP):
            found.append([])
        else:
            found[-1].append(line)
    return [paragraph for paragraph in found if paragraph]


def _subject(paragraph: Sequence[str]) -> str:
    """Return what a paragraph is about: the words of its first line before a wide space, without numbers; four at most."""
    words = re.split(r"\s{2,}", re.sub(r"[\d.,]+", "", paragraph[0]).strip())[0].split()
    return " ".join(words[:1] if words[0] == "note:" else words[:4])


if __name__ == "__main__":
    main(sys.argv[1:])
