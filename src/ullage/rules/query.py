"""PromQL that is put together by arithmetic: a metric's function, called with queries, gives the query of that metric.

A query knows by which labels its series are told apart, and so how two of them are joined: one value to one where the labels are the
same, many to one where the labels of one are among those of the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

Labels = tuple[str, ...]
_RECORDED = re.compile(r"\b[a-z]+:ullage_\w+:\w+")
ROOM = 100  # characters of a line; what is longer is spread over several


@dataclass(frozen=True)
class PromQuery:
    """An expression of PromQL, and the labels that tell its series apart.

    >>> from ullage.metrics.ofu import sampled_ofu
    >>> gpu, model = ("host", "gpu", "model"), ("model",)
    >>> print(sampled_ofu(recorded("tensor", gpu), recorded("clock", gpu), recorded("highest", model)).text)
    (tensor * (clock / on (model) group_left () (highest != 0)))
    """

    text: str
    labels: Labels

    @property
    def reads(self) -> frozenset[str]:
        """The recorded series that it reads."""
        return frozenset(_RECORDED.findall(self.text))

    def __mul__(self, other: PromQuery | float) -> PromQuery:
        return self._joined_by_sign("*", other)

    __rmul__ = __mul__

    def __add__(self, other: PromQuery | float) -> PromQuery:
        return self._joined_by_sign("+", other)

    __radd__ = __add__

    def __sub__(self, other: PromQuery | float) -> PromQuery:
        return self._joined_by_sign("-", other)

    def __rsub__(self, other: float) -> PromQuery:
        return self._with_text(_operands_in_brackets(number(other), "-", self.text))

    def __truediv__(self, other: PromQuery | float) -> PromQuery:
        return self._joined_by_sign("/", other)

    def nullif(self, value: float) -> PromQuery:
        """Return the series whose value is not this one: what divides must not be 0 (see `metrics.metric.ratio`)."""
        return self.compared("!=", value)

    def compared(self, sign: str, value: PromQuery | float) -> PromQuery:
        """Return the series whose value compares so."""
        return self._joined_by_sign(sign, value)

    def ones(self) -> PromQuery:
        """Return 1 for each of the series."""
        return self._with_text(f"{self.text} ^ 0")

    def both(self, other: PromQuery) -> PromQuery:
        """Return the series that the other has too."""
        return self._matched_by_labels("and", other)

    def unless(self, other: PromQuery) -> PromQuery:
        """Return the series that the other has not."""
        return self._matched_by_labels("unless", other)

    def otherwise(self, other: PromQuery) -> PromQuery:
        """Return these series, and those of the other which are told apart from all of these by their common labels."""
        clause = "or" if set(self.labels) == set(other.labels) else f"or on ({', '.join(_common(self.labels, other.labels))})"
        labels = self.labels if len(self.labels) >= len(other.labels) else other.labels
        return PromQuery(_operands_in_brackets(self.text, clause, other.text), labels)

    def grouped(self, how: str, labels: Sequence[str]) -> PromQuery:
        """Return one series for each value of some labels: `how` is sum, max, min, count, group."""
        by = tuple(labels)
        return PromQuery(_function_call(f"{how} by ({', '.join(by)})", self.text), by)

    def labelled(self, label: str, value: str) -> PromQuery:
        """Return the series with a label of this value."""
        text = _function_call("label_replace", f'{self.text}, "{label}", "{value}", "", ""')
        return PromQuery(text, (*(one for one in self.labels if one != label), label))

    def carrying(self, other: PromQuery, labels: Sequence[str]) -> PromQuery:
        """Return these series times the one of the other that each belongs to, from which they take some labels."""
        common = ", ".join(label for label in _common(self.labels, other.labels) if label not in labels)
        text = _operands_in_brackets(self.text, f"* on ({common}) group_left ({', '.join(labels)})", other.text)
        return PromQuery(text, (*(label for label in self.labels if label not in labels), *labels))

    def only(self, matchers: str) -> PromQuery:
        """Return only the series of a selector whose labels match: `job_id!=""`."""
        return self._with_text(f"{self.text}{{{matchers}}}")

    def _with_text(self, text: str) -> PromQuery:
        return PromQuery(text, self.labels)

    def _matched_by_labels(self, word: str, other: PromQuery) -> PromQuery:
        same = set(self.labels) == set(other.labels)
        clause = word if same else f"{word} on ({', '.join(_common(self.labels, other.labels))})"
        return PromQuery(_operands_in_brackets(self.text, clause, other.text), self.labels)

    def _joined_by_sign(self, sign: str, other: PromQuery | float) -> PromQuery:
        if not isinstance(other, PromQuery):
            return self._with_text(_operands_in_brackets(self.text, sign, number(other)))
        mine, theirs = set(self.labels), set(other.labels)
        if not (mine <= theirs or theirs <= mine):
            raise ValueError(f"series by {self.labels} and by {other.labels} can't be joined")
        labels, clause = self.labels, sign
        if mine > theirs:
            clause = f"{sign} on ({', '.join(other.labels)}) group_left ()"
        elif mine < theirs:
            labels, clause = other.labels, f"{sign} on ({', '.join(self.labels)}) group_right ()"
        return PromQuery(_operands_in_brackets(self.text, clause, other.text), labels)


def recorded(name: str, labels: Sequence[str]) -> PromQuery:
    """Return the query of a series that a rule records."""
    return PromQuery(name, tuple(labels))


def number(value: float) -> str:
    """Return a number as PromQL reads it, to the last digit, and shortly.

    >>> number(1.83e9), number(0.005), number(132.0), number(1 / 3)
    ('1.83e9', '0.005', '132', '0.3333333333333333')
    """
    plain = repr(float(value)).removesuffix(".0")
    digits = plain.rstrip("0")
    zeros = len(plain) - len(digits)
    if not plain.isdigit() or zeros < 4:
        return plain
    return f"{digits[0]}{f'.{digits[1:]}' if digits[1:] else ''}e{len(plain) - 1}"


def duration(seconds: float) -> str:
    """Return a span of time as PromQL reads it, which knows no fractions: in milliseconds where it is no whole number of seconds.

    >>> duration(30.0), duration(5.5)
    ('30s', '5500ms')
    """
    milliseconds = round(seconds * 1000)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def _common(one: Labels, other: Labels) -> Labels:
    return tuple(label for label in one if label in other)


def _operands_in_brackets(left: str, sign: str, right: str) -> str:
    """Return two operands in brackets, on one line where there is room."""
    line = f"({left} {sign} {right})"
    if len(line) <= ROOM and "\n" not in line:
        return line
    return f"(\n{_indented_lines(left)}\n{_indented_lines(f'{sign} {right}')}\n)"


def _function_call(function: str, inner: str) -> str:
    bare = inner[1:-1] if _in_brackets(inner) else inner
    if len(function) + len(bare) + 3 <= ROOM and "\n" not in bare:
        return f"{function} ({bare})" if " " in function else f"{function}({bare})"
    lines = bare.strip("\n").split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    body = _indented_lines("\n".join(line[margin:] for line in lines))
    return f"{function} (\n{body}\n)" if " " in function else f"{function}(\n{body}\n)"


def _in_brackets(text: str) -> bool:
    """Return whether the first bracket of an expression is closed by its last: there is nothing outside."""
    if not text.startswith("("):
        return False
    depths, depth, quoted = [], 0, False
    for place, sign in enumerate(text):
        quoted ^= sign == '"' and text[place - 1] != "\\"
        depth += 0 if quoted else (sign == "(") - (sign == ")")
        depths.append(depth)
    return len([*takewhile(lambda depth: depth > 0, depths)]) == len(text) - 1


def _indented_lines(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
