"""Compute Sanitizer as it would answer: logs in its form, of programs that run in no time, with errors where a test plants them."""

from __future__ import annotations

from pathlib import Path

from gpu.apart import Told

CLEAN = {
    "memcheck": "========= ERROR SUMMARY: 0 errors\n",
    "synccheck": "========= ERROR SUMMARY: 0 errors\n",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
}
FOUND = {
    "memcheck": "========= Invalid __global__ write of size 4 bytes\n=========     at faulty+0x90\n========= ERROR SUMMARY: 64 errors\n",
    "synccheck": "========= Barrier error detected. Divergent thread(s) in warp\n========= ERROR SUMMARY: 2 errors\n",
    "racecheck": "========= Error: Race reported between Write access at faulty+0x50\n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n",
}


class Sanitizer:
    """Runs the program that is watched, in no time. `logs` gives a log of its own to (bench or "fault", tool), `facts` what a bench's
    program tells; `ran` are the pairs that were asked for."""

    def __init__(self):
        self.logs, self.facts, self.ran = {}, {}, []

    def __call__(self, programs, limit):
        assert limit > 0
        return [self._watched(one) for one in programs]

    def _watched(self, program):
        assert program.module == "sanitizer_program" and program.under[0].endswith("compute-sanitizer")
        words = list(program.under)
        tool, log = words[words.index("--tool") + 1], Path(words[words.index("--log-file") + 1])
        what, name = program.words
        key = ("fault" if what == "fault" else name, tool)
        self.ran.append(key)
        said = self.logs.get(key, FOUND[tool] if what == "fault" else CLEAN[tool])
        if said is not None:
            log.write_text(f"========= COMPUTE-SANITIZER\n{said}")
        facts = {"kernels": 2, "of": 2, "wrong": 0, "problem": ""} | self.facts.get(name, {})
        return Told(0 if said is not None else None, facts, "")
