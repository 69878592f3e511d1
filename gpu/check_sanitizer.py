"""Does Compute Sanitizer find a fault in the kernels of the microbenchmarks?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu import apart
from gpu.benches import ORDER, code_of
from gpu.check import Findings, NotMeasured, check
from gpu.evidence import add_line, branch, read_lines
from gpu.machine import Machine, described
from gpu.sanitizer_program import FAULTS, small
from gpu.tools import find_tool, sanitizer_report
from ullage.benches.bench import BENCHES, Bench, Case, Target, cases_for
from ullage.benches.running.board import architecture_of

TOOLS = tuple(FAULTS)  # memcheck, racecheck, synccheck
RECORDING = "sanitizer.jsonl"
LIMIT = 90.0  # seconds for the kernels of one bench under a tool: each instruction costs many
# The driver's answers are ours to judge; an unfinished stream is no error.
OPTIONS = ("--report-api-errors", "no", "--print-limit", "20")
# racecheck takes the thread that asks for a bulk copy for the writer of its bytes, and does not see that the barrier's transaction
# count orders them: known false hazards, seen with FlashAttention's kernels too. Kernels that copy so are judged by the other tools.
UNSEEN_BY_RACECHECK = "cp.async.bulk"
COLUMNS = {
    "tool": "memcheck, racecheck, synccheck",
    "bench": "whose kernels ran; 'fault': the one that the tool must find",
    "kernels": "that ran",
    "of": "distinct kernels of the bench",
    "wrong": "of them, kernels with a wrong result",
    "errors": "that the tool reports (–: it came to no end)",
    "warnings": "that racecheck reports beside errors",
    "judged": "whether what it reports counts: not racecheck's of kernels with bulk copies",
    "first": "what it reports first",
    "problem": "why it is not whole",
}


@check(
    headline="{kernels} kernels: {memcheck_errors} errors by memcheck, {racecheck_errors} by racecheck, {synccheck_errors} by synccheck; "
    "tools that find a planted fault: {tools}",
    answers={
        "tools": "tools that find the fault which is planted for them",
        "kernels": "distinct kernels that ran to their end under memcheck",
        "memcheck_errors": "accesses out of bounds or misaligned",
        "racecheck_errors": "hazards in shared memory, in kernels without bulk copies",
        "racecheck_warnings": "hazards that may be meant, in the same kernels",
        "synccheck_errors": "wrong uses of barriers",
        "wrong_results": "kernels whose result was wrong while they were watched",
        "not_whole": "pairs of bench and tool that came to no end",
    },
    columns=COLUMNS,
)
def sanitizer(machine: Machine) -> Findings:
    """Does Compute Sanitizer find a fault in the kernels of the microbenchmarks?

    Each distinct kernel runs once, on random data, laid out for a GPU of two SMs with little memory, under memcheck, racecheck and
    synccheck side by side, and its result is compared with its reference. First each tool has to find a fault that is planted for it: an
    access far out of bounds, a race in shared memory, a barrier that half a warp reaches. What has ended is kept in `sanitizer.jsonl`; the
    next start goes on with the rest.
    """
    assert machine.room is not None, "the runner gives every check room"
    tool = getattr(machine, "sanitizer", None) or find_tool("compute-sanitizer")
    path = machine.room.folder / RECORDING
    driver = branch(described(machine)["driver"])
    earlier = [line for line in read_lines(path) if line.get("driver") == driver and set(line.get("row", ())) == set(COLUMNS)]
    done = {(line["row"]["tool"], line["row"]["bench"]): line for line in earlier}
    findings = Findings({"sanitizer": Path(tool).name, "memory": small(Target("sm_90a")).memory, "sms": small(Target("sm_90a")).sms})
    rows = {("fault", one): row for one, row in zip(TOOLS, _watched(machine, tool, "fault", TOOLS, TOOLS), strict=True)}
    able = [one for one in TOOLS if rows["fault", one]["errors"]]
    if not able:
        raise NotMeasured(f"no tool finds the fault planted for it: {rows['fault', TOOLS[0]]['problem'] or 'they report nothing'}")
    architecture = architecture_of(_capability(machine), machine.name)
    left = []
    for bench in _benches(architecture):
        wanted = [one for one in able if (done.get((one, bench.name)) or {}).get("code") != code_of(bench.name)]
        if wanted and machine.room.left < LIMIT / 3:
            left.append(bench.name)
            continue
        for one, row in zip(wanted, _watched(machine, tool, "bench", wanted, [bench.name] * len(wanted)), strict=True):
            row["judged"] = one != "racecheck" or not _copies_in_bulk(bench, architecture)
            done[one, bench.name] = {"driver": driver, "code": code_of(bench.name), "row": row}
            add_line(path, done[one, bench.name])
            machine.room.say(f"    {_row_line(row)}")
        rows |= {(bench.name, one): done[one, bench.name]["row"] for one in able if (one, bench.name) in done}
    findings.rows = list(rows.values())
    findings.answers = _answers(findings.rows, able)
    findings.unfinished = f"not reached: {', '.join(left)}" if left else ""
    findings.wrong = list(_wrong(findings.rows))
    findings.notes = list(_notes(findings.rows, able))
    if path.exists():
        findings.recordings = {RECORDING: path.read_bytes()}
    return findings


def _capability(machine: Machine) -> tuple[int, int]:
    major, _, minor = (machine.compute_capability or "9.0").partition(".")
    return int(major), int(minor)


def _benches(architecture: str) -> list[Bench]:
    """Return the benches with kernels of ours for an architecture, what matters most first."""
    names = [*(name for name in ORDER if name in BENCHES), *(name for name in BENCHES if name not in ORDER)]
    return [BENCHES[name] for name in names if any(isinstance(case, Case) for case in cases_for(BENCHES[name], _target(architecture)))]


def _target(architecture: str) -> Target:
    return small(Target(architecture))


def _copies_in_bulk(bench: Bench, architecture: str) -> bool:
    cases = cases_for(bench, _target(architecture))
    return any(UNSEEN_BY_RACECHECK in case.source for case in cases if isinstance(case, Case))


def _watched(machine: Machine, tool: str, what: str, tools: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Run a bench's kernels, or planted faults, under some tools side by side; return a row for each."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"{one}.log" for one in tools]
        programs = [
            apart.asked("sanitizer_program", what, name, under=(tool, "--tool", one, "--log-file", str(log), *OPTIONS))
            for one, name, log in zip(tools, names, logs, strict=True)
        ]
        told = apart.together(machine, programs, LIMIT) if programs else []
        texts = [log.read_text(errors="replace") if log.exists() else "" for log in logs]
    rows = zip(tools, names, told, texts, strict=True)
    return [_row(one, "fault" if what == "fault" else name, ended, text) for one, name, ended, text in rows]


def _row(tool: str, bench: str, told: apart.Told, log: str) -> dict[str, Any]:
    found = sanitizer_report(log)
    counted = {name: told.facts.get(name) for name in ("kernels", "of", "wrong")}
    problem = "" if bench == "fault" else str(told.facts.get("problem", ""))
    if found["errors"] is None:
        problem = problem or told.problem or found["first"] or "the tool gave no summary"
    return {"tool": tool, "bench": bench, **counted, **found, "judged": True, "problem": problem[:300]}


def _row_line(row: Mapping[str, Any]) -> str:
    counted = "no summary" if row["errors"] is None else f"{row['errors']} errors, {row['warnings']} warnings"
    words = f"{row['bench']}, {row['tool']}: {counted} in {row['kernels']} of {row['of']} kernels"
    return "; ".join(text for text in (words, row["problem"]) if text)


def _answers(rows: Sequence[Mapping[str, Any]], able: Sequence[str]) -> dict[str, Any]:
    of_benches = [row for row in rows if row["bench"] != "fault"]

    def total(name: str, tool: str) -> int | None:
        mine = [row[name] for row in of_benches if row["tool"] == tool and row["judged"] and row[name] is not None]
        return sum(mine) if tool in able else None

    return {
        "tools": " ".join(able),
        "kernels": total("kernels", "memcheck"),
        **{f"{tool}_errors": total("errors", tool) for tool in TOOLS},
        "racecheck_warnings": total("warnings", "racecheck"),
        "wrong_results": sum(row["wrong"] or 0 for row in of_benches),
        "not_whole": sum(1 for row in of_benches if row["errors"] is None),
    }


def _wrong(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["bench"] != "fault":
            if row["errors"] and row["judged"]:
                yield f"{row['tool']} reports {row['errors']} errors in the kernels of {row['bench']}: {row['first']}"
            if row["wrong"]:
                yield f"{row['wrong']} kernels of {row['bench']} give a wrong result under {row['tool']}: {row['problem']}"


def _notes(rows: Iterable[Mapping[str, Any]], able: Sequence[str]) -> Iterator[str]:
    for tool in TOOLS:
        if tool not in able:
            yield f"{tool} does not find the fault planted for it, so its silence would mean nothing: it was left out"
    for row in rows:
        if row["bench"] != "fault" and row["errors"] is None:
            yield f"{row['bench']} under {row['tool']}: {row['problem']}"
        if row["errors"] and not row["judged"]:
            yield f"racecheck reports {row['errors']} errors in {row['bench']}: it does not see what orders bulk copies"
