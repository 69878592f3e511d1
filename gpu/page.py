"""The page docs/gpu-checks.md: how to run the checks, what each answers, and what was measured so far, from results/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.check import Check, checks
from gpu.evidence import VERDICTS, problems_of, read
from gpu.session import RESULTS, seconds

NOT_YET = "not measured yet"
HOW = """# What only a real GPU can tell

```console
$ make gpu                              # or: python3 gpu/run.py
$ python3 gpu/run.py --list             # the checks in their order, how long each takes, what it asks
$ python3 gpu/run.py peaks --again      # one check, though it passed not long ago
$ python3 gpu/run.py --pack all.tar.gz  # all evidence as one file; --unpack puts it back
```

A plain Python 3.11 or later with NumPy, pyarrow and nvidia-ml-py is enough; nothing is installed and no network is needed.
Checks that need a load take PyTorch where it sees the GPU, and are otherwise "not measured: no PyTorch". `benches` and `gemm_ofu` take
cuda-bindings with NVRTC, `trace_trees` msgspec, and Nsight Systems where `nsys` is installed, `tile_flops` Nsight Compute. Those of
CUPTI (`cupti_…`) take the libcupti of the CUDA wheels and a C compiler, and run what may crash in processes of their own. Nothing on
the card is changed: no clocks, no limits, no modes.

Evidence goes to `results/<gpu>/<check>.json`: date, driver, versions, what was run, the numbers; recordings lie beside it, of the
microbenchmarks in `benches/`. UUIDs are hashed. The script starts no check that would end after 9 minutes (`--minutes`) and skips what
passed on the same GPU and driver in the last 24 hours (`--max-age`, `--again`), so it can be started again to go on: all of them take
two or three starts. `benches` and `gemm_ofu` take more than one by themselves, write down each result at once, and go on where they
ended, however they ended. What failed comes last the next time. A check that hangs ends the script, with evidence. It ends with 0 when
all that could run passed, 1 when a check failed or a library is missing, 3 when there is no GPU.

Let the GPU be yours alone meanwhile: `processes` in the evidence counts those that computed on it at the start.

A new check is a new file `gpu/check_….py` with one function under `@check`."""


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
    lines = ["| check | asks | takes | needs PyTorch | measured so far |", "|---|---|---|---|---|"]
    for check in checks():
        state = "; ".join(f"{_cell(one['machine']['gpu'])}: {_state(one)}" for one in found[check.name]) or NOT_YET
        lines.append(f"| `{check.name}` | {check.question} | {seconds(check)} s | {'yes' if check.loaded else 'no'} | {state} |")
    return "\n".join(lines)


def _state(one: Mapping[str, Any]) -> str:
    if one["verdict"] == VERDICTS[2]:
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
    if one["verdict"] == "failed":
        parts.append(f"It failed: {_cell(one['reason'])}.")
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
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return " ".join(str(value).replace("|", "/").replace("<", "‹").replace(">", "›").split())
