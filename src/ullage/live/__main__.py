"""Record a program on a machine that has NumPy and pyarrow alone: `python3 -m ullage.live FOLDER -- ./a.out`.

The recordings can be read anywhere: `ullage trace FOLDER`. The exit code is the program's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ullage.errors import UllageError
from ullage.live.gathering import gathering
from ullage.live.launch import NotRun
from ullage.live.recording import Wanted, record

USAGE = "python3 -m ullage.live FOLDER -- COMMAND …"


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code; 127 or 126 where it can't be run."""
    parser = argparse.ArgumentParser(prog="python3 -m ullage.live", usage=USAGE, description="Record a program's work on the GPUs.")
    parser.add_argument("folder", type=Path, help="where the recordings go")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments, after --")
    asked = parser.parse_args(arguments)
    command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    if not command:
        parser.error("name a program after --")
    try:
        where = gathering(asked.folder, None)
        result = record(command, where.folder, Wanted())
    except NotRun as error:
        print(f"ullage: {error}", file=sys.stderr)  # noqa: T201
        return error.code
    except UllageError as error:
        print(f"ullage: {error}", file=sys.stderr)  # noqa: T201
        return 1
    for note in (*where.notes, *result.notes):
        print(f"ullage: {note}", file=sys.stderr)  # noqa: T201
    return result.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
