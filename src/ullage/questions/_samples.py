"""What does a place of telemetry say? A question of Python alone: `ullage sample` and `ullage fleet --store` keep samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function
from ullage.asking.telemetry import TelemetryReading

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class SamplesQuestion(TelemetryReading):
    """Yield what a place says as record batches of `ullage.tables.SAMPLES`: clean, in SI units, not yet settled."""

    source: str = asked("A file, a folder or a URL.", argument=True, required=True)


def answer(question: SamplesQuestion, progress: Progress, command: str = "") -> Iterator[pa.RecordBatch]:  # noqa: ARG001
    """Yield record batches. Raises UllageError for a place that does not exist or is no telemetry, and under `strict` for a partial one."""
    from ullage.problems import Problems
    from ullage.sources.source import read_samples as read
    from ullage.sums.ratio_units import settled_batches

    problems = Problems()
    yield from settled_batches(read(question.source, question.reading_options(progress), problems))
    if question.strict:
        problems.refuse_partial()


read_samples = python_function(
    RegisteredQuestion(
        name="read samples",
        asked=SamplesQuestion,
        noun="reading samples",
        answer=answer,
        shown_by="",
        examples="",
        listed_by="help(ullage.read_samples)",
    )
)
