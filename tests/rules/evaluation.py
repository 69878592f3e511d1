"""Rules evaluated by Prometheus' own engine: `promtool test rules` in a process that ends, with no server and no clock.

`promtool` is given series and asks for the value of an expression at a moment; what it expects is nothing, so that it prints what it
found, to the last digit.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.servers import program

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class GivenSeries:
    """A series as it was scraped: a value for each step of the input's interval, as text; "_": none, "stale": it ended."""

    name: str
    labels: Mapping[str, str]
    values: Sequence[str]

    @property
    def selector(self) -> str:
        """Its name with its labels."""
        return f"{self.name}{{{', '.join(f'{label}={json.dumps(value)}' for label, value in self.labels.items())}}}"


@dataclass
class PromtoolInput:
    """What rules are evaluated on: series whose values are `step` s apart, and the rules' `interval` (s)."""

    folder: Path
    rules: str
    series: Sequence[GivenSeries]
    step: int = 30
    interval: int = 30

    def evaluate(self, expressions: Sequence[str], moments: Sequence[int]) -> dict[tuple[str, int], dict[Labels, float]]:
        """Return the values of expressions at moments (s), by the labels of each series, its name left out."""
        (self.folder / "rules.yml").write_text(self.rules)
        tests = [{"expr": expression, "eval_time": f"{at}s", "exp_samples": []} for expression in expressions for at in moments]
        given = [{"series": one.selector, "values": " ".join(one.values)} for one in self.series]
        test = {"interval": f"{self.step}s", "input_series": given, "promql_expr_test": tests}
        document = {"rule_files": ["rules.yml"], "evaluation_interval": f"{self.interval}s", "tests": [test]}
        document["group_eval_order"] = re.findall(r"^  - name: (\S+)$", self.rules, re.M)  # any order, were it not said
        place = self.folder / "test.json"  # YAML reads JSON
        place.write_text(json.dumps(document))
        done = subprocess.run([program("promtool"), "test", "rules", str(place)], capture_output=True, text=True, check=False, timeout=120)
        said = done.stdout + done.stderr
        answers = {(expression, at): {} for expression in expressions for at in moments}
        if done.returncode == 0:  # it found nothing, as was expected
            return answers
        assert "exp:" in said, said[:4000]
        for expression, at, got in _ANSWER.findall(said):
            answers[json.loads(expression), _seconds(at)] = dict(_samples(got))
        return answers


_ANSWER = re.compile(r'expr: ("(?:[^"\\]|\\.)*"), time: (\S+?),\s+exp:\s*nil\s+got:(.*?)(?=\n\s*expr: |\Z)', re.DOTALL)
_LABEL = r'[A-Za-z_][A-Za-z0-9_]*="(?:[^"\\]|\\.)*"'
_SAMPLE = re.compile(rf"\{{((?:{_LABEL}(?:, )?)*)\}} (\S+?)(?:,|\s|$)")


def _seconds(text: str) -> int:
    """Return a span of Go's in seconds: "1h2m30s"."""
    return sum(int(count) * {"h": 3600, "m": 60, "s": 1}[unit] for count, unit in re.findall(r"(\d+)([hms])", text))


def _samples(text: str) -> Iterator[tuple[Labels, float]]:
    for words, value in _SAMPLE.findall(text):
        labels = (one.partition("=") for one in re.findall(_LABEL, words))
        yield frozenset((name, json.loads(quoted)) for name, _, quoted in labels if name != "__name__"), float(value)
