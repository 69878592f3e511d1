"""The page docs/gpu-checks.md: how to run the checks, what each answers, and what was measured so far, from results/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.check import Check, checks
from gpu.evidence import NOT_MEASURED, REFUTED, problems_of, read
from gpu.summary import plain
from gpu.timetable import STAGES, TABLE, cost

NOT_YET = "not measured yet"
HOW = """# What only a real GPU can tell

```console
$ make gpu                                     # or: python3 gpu/run.py
$ python3 gpu/run.py --list                    # the table of checks: what each costs, what it is worth
$ python3 gpu/run.py --archive /tmp/evidence   # keep all evidence packed there too, in files below 16 MB
$ python3 gpu/run.py peaks ofu_gemm --again    # two checks, though they are answered already
$ python3 gpu/run.py --unpack evidence-*.tar.gz
```

The runner needs Python 3.11 or later and nothing else: no installation, no network. What a check needs beside it stands in the table,
and what is missing costs that check alone. NVML, the CUDA driver, NVRTC and cuBLAS are called by ctypes where their packages are missing,
and loads are made by PyTorch, else by cuBLAS, else by kernels of ours. `make gpu-wheels` (`BARER=1` for more) fetches what a machine
without a network may lack, and builds the recorder, into `gpu/wheels/`: carried along, it is put to use where it is missing. Nothing on
the card is changed: no clocks, no limits, no modes.

**What settles the most comes first.** The checks run in the order of the table, as many as fit into 9.5 minutes (`--minutes`), each in
a process of its own. A check that hangs is ended, one that crashes is noted, and the next begins; after either the runner asks whether
the GPU still answers. Each result is one line as it comes, written at once to `results/<gpu>/<check>.json`: date, driver, versions, what
was run, the numbers, and a mark of the code that measured; recordings lie beside it, those of the microbenchmarks in `benches/`. UUIDs
are hashed. `results/<gpu>/README.md` sums up what is confirmed, refuted and open; `attempts.jsonl` has a line for each attempt.

**Start it again to go on.** What this model of GPU has answered under this branch of its driver at the same code is not asked again
(`--again`, `--this-board`); `benches` and `gemm_ofu` go on where they ended, however they ended; what came to no end goes last. Only
`peaks` runs at every start. It ends with 0 when every check has an answer that agrees with Ullage, 3 when something is open, broken or
refuted, 1 when there is no GPU.

Let the GPU be yours alone meanwhile: `processes` in the evidence counts those that computed on it at the start.

A new check is a new file `gpu/check_….py` with one function under `@check`, and a line in the table in `gpu/timetable.py`."""


RESULTS = Path(__file__).resolve().parents[1] / "results"


def page(results: Path = RESULTS) -> str:
    """Return the page in Markdown, without a trailing comment."""
    found = {check.name: _evidence(results, check) for check in checks()}
    parts = [HOW, "## The checks\n\n" + _summary(found), "## Measured so far"]
    parts += [_section(check, found[check.name]) for check in checks()]
    return "\n\n".join(parts) + "\n"


def _evidence(results: Path, check: Check) -> list[dict[str, Any]]:
    """Return the well-formed evidence of a check, by GPU."""
    folders = sorted(path for path in results.glob("*") if path.is_dir())
    found = [read(folder, check.name) for folder in folders]
    return [one for one in found if one is not None and not problems_of(one, check)]


def _summary(found: Mapping[str, list[dict[str, Any]]]) -> str:
    lines = ["| check | what it settles | takes | needs | measured so far |", "|---|---|---|---|---|"]
    stage = 0
    for entry in TABLE:
        if entry.stage != stage:
            stage = entry.stage
            lines.append(f"| **{stage}. {STAGES[stage]}** | | | | |")
        state = "; ".join(f"{_cell(one['machine']['gpu'])}: {_state(one)}" for one in found[entry.name]) or NOT_YET
        lines.append(f"| `{entry.name}` | {entry.worth} | {cost(entry)} s | {', '.join(entry.needs) or '–'} | {state} |")
    return "\n".join(lines)


def _state(one: Mapping[str, Any]) -> str:
    if one["verdict"] == NOT_MEASURED:
        return f"not measured ({_cell(one['reason'])})"
    return f"{one['verdict']} {one['date'][:10]}{', not finished' if one['unfinished'] else ''}"


def _section(check: Check, found: Sequence[Mapping[str, Any]]) -> str:
    rest = check.page.partition("\n")[2].strip()
    parts = [f"### {check.name}\n\n{check.question}", *([rest] if rest else [])]
    parts.append("\n\n".join(_measured(check, one) for one in found) or f"*{NOT_YET}*")
    return "\n\n".join(parts)


def _measured(check: Check, one: Mapping[str, Any]) -> str:
    machine = one["machine"]
    torch = one["versions"].get("torch")
    parts = [f"**{_cell(machine['gpu'])}**, driver {_cell(machine['driver'])}{f', PyTorch {torch}' if torch else ''}: {_state(one)}"]
    if one["reason"] and one["verdict"] != NOT_MEASURED:
        parts.append(f"{'It contradicts Ullage' if one['verdict'] == REFUTED else 'It is not whole'}: {_cell(one['reason'])}.")
    if one["answers"]:
        parts.append(_table(["answer", "value", "meaning"], [[f"`{n}`", one["answers"].get(n), text] for n, text in check.answers.items()]))
    if one["rows"]:
        parts.append(_table(list(check.columns), [[row.get(name) for name in check.columns] for row in one["rows"]]))
    notes = [*one["notes"], *([f"not finished: {one['unfinished']}"] if one["unfinished"] else [])]
    parts += ["\n".join(f"- {_cell(note)}" for note in notes)] if notes else []
    return "\n\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)


def _cell(value: Any) -> str:
    """Return a value as the text of a table's cell.

    >>> _cell(0.123456), _cell(1.35e9), _cell(132), _cell(None), _cell("a|b")
    ('0.1235', '1.35e+09', '132', '–', 'a/b')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return plain(value)
