"""Run the checks that need a GPU: `python3 gpu/run.py`, or `make gpu`.

The runner needs Python 3.11 or later and nothing else; what a check needs beside it is in the table (`--list`), and what is missing
costs that check alone. Exit: 0 every check has an answer and none contradicts Ullage, 3 something is open, broken or refuted,
1 there is no GPU, 2 usage.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# How a check's process starts. A script of its own would be run again by each process that a check spawns.
ALONE = f"import sys; sys.path[:1] = [{str(ROOT)!r}, {str(ROOT / 'src')!r}]; from gpu.alone import main; sys.exit(main(sys.argv[1:]))"


def main(arguments: Sequence[str] | None = None, command: Sequence[str] | None = None, **options_of_session: Any) -> int:
    """Run what the arguments ask for and return the exit code; `command` starts a check's process; the rest is for `Session`."""
    from gpu.carried import carry
    from gpu.pack import pack, unpack
    from gpu.session import Session, run
    from gpu.timetable import CALL, TABLE, entries, table_lines

    parser = _parser(CALL)
    options = parser.parse_args(arguments)
    unknown = set(options.checks) - {entry.name for entry in TABLE}
    if unknown:
        parser.error(f"no check is called '{min(unknown)}'; --list names them")
    chosen = entries(options.checks)
    if options.list:
        print("\n".join(table_lines(chosen)))
        return 0
    if options.unpack:
        print(f"{unpack(options.unpack, options.out)} files are in {options.out}")
        return 0
    if options.pack:
        print(f"{pack(options.out, options.pack)} files of {options.out} are in {options.pack}")
        return 0
    carried = carry()
    for line in carried.skipped:
        print(f"carried, but not for this machine: {line}")
    if carried.used:
        print(f"carried packages in use: {', '.join(carried.used)}")
    signal.signal(signal.SIGTERM, _stop)  # as Ctrl-C does: what was found is packed, and nothing is left running
    alone = command or [sys.executable, "-c", ALONE]
    wishes = {"again": options.again, "this_board": options.this_board, **options_of_session}
    session = Session(alone, options.out, time.time(), options.minutes * 60, options.archive, **wishes)
    try:
        return run(session, chosen)
    except KeyboardInterrupt:
        return 130


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _parser(call: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu/run.py",
        description="Run the checks that need a GPU, what settles the most first. Evidence goes to results/<gpu>/. Start it again to go "
        "on: what this model of GPU has answered at the same code is not asked again.",
    )
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="only these; --list names them")
    parser.add_argument("--minutes", type=_minutes, default=call / 60, help=f"end within so many minutes (default {call / 60:g})")
    parser.add_argument("--again", action="store_true", help="repeat what is answered already")
    parser.add_argument("--this-board", action="store_true", help="take only evidence of this very GPU, not of another of its model")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="where the evidence goes (default: results/)")
    parser.add_argument("--archive", type=Path, metavar="FOLDER", help="keep all evidence packed in FOLDER too, in files below 16 MB")
    parser.add_argument("--list", action="store_true", help="print the table of checks, with cost and worth, and end")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="pack all evidence into FILE (.tar.gz) and end")
    parser.add_argument("--unpack", type=Path, metavar="FILE", nargs="+", help="put the evidence that archives hold in its place and end")
    return parser


def _minutes(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1440:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1440 minutes")
    return value


if __name__ == "__main__":
    sys.path[:1] = [str(ROOT), str(ROOT / "src")]
    sys.exit(main())
