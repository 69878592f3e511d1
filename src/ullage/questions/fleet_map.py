"""Where in the fleet does it fall short, GPU by GPU, and whose is it?"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import StoredTelemetryReading
from ullage.errors import UllageError, did_you_mean, harmless
from ullage.reports.fleet.request import FleetRequest, GpuPrices

if TYPE_CHECKING:
    from ullage.reports.fleet.fleet_map import FleetMap

OWNER_KEYS = ("namespace", "user", "job", "cluster", "host", "model")


@dataclass(frozen=True, kw_only=True)
class FleetMapQuestion(GpuPrices, StoredTelemetryReading):
    """OFU of every GPU where it stands, and GPU-hours that fall short by whose they are and by cause.

    SOURCE is telemetry as `ullage fleet` reads it, and the numbers are those of its report. A page draws a map of hosts and GPUs, and an
    area for each owner and cause.
    """

    sources: tuple[str, ...] = asked(
        "Files, folders, stores or URLs.", metavar="SOURCE…", argument=True, required=True, repeated=True, local=True
    )
    jobs: tuple[str, ...] = asked(
        "Job records: sacct output, a CSV, a mapping folder. Repeatable.", (), metavar="FILE", repeated=True, local=True
    )
    by: str | None = asked(
        "Whose the GPU-hours are: namespace, user, job, cluster, host or model.",
        shown="the first of namespace, user, job that is known",
        suggested="ullage.questions.fleet_map:OWNER_KEYS",
    )
    where: str | None = asked(
        "Only a part of the fleet: 'user=ann and model=H100'; with or, not, parentheses, != and *.", metavar="CONDITION"
    )
    gpu: str | None = asked("Which GPU it is, where the samples don't say.", minor=True, suggested="ullage.gpus.chip:all_names")

    def __post_init__(self) -> None:
        """Refuse what makes no sense before anything is read."""
        if self.by is not None and self.by not in OWNER_KEYS:
            hint = did_you_mean(self.by, OWNER_KEYS, "ullage fleet-map --help")
            raise UllageError(f"a map has no owners by '{harmless(self.by, 60)}'", hint)
        self.request(lambda _: None)

    def request(self, progress: Progress) -> FleetRequest:
        """Return the request for the fleet that the map is of."""
        priced = {field.name: getattr(self, field.name) for field in fields(GpuPrices)}
        return FleetRequest(since=self.since, until=self.until, gpu=self.gpu, where=self.where, progress=progress, **priced)


def answer(question: FleetMapQuestion, progress: Progress, command: str = "") -> FleetMap:
    """Return the map; raises UllageError for what the user can fix, and for partial input under `strict`."""
    from ullage.intake import opened
    from ullage.reports.fleet.fleet_map import fleet_map
    from ullage.reports.fleet.judged import judged_fleet, part_of_fleet

    request = question.request(progress)
    options = question.reading_options(progress)
    with opened(question.sources, jobs=question.jobs, options=options, engine=question.engine) as taken:
        if question.strict:
            taken.problems.refuse_partial()
        notes = [*taken.problems.lines()]
        judged, condition = judged_fleet(taken.samples, request, notes, taken.rolled), request.condition()
        if condition is not None:
            judged = part_of_fleet(judged, condition)
            notes.insert(0, f"this is the part of the fleet that fits '{harmless(str(condition), 300)}'")
        return taken.marked(fleet_map(judged, question.by, command, notes))


_EXAMPLES = """
  ullage fleet-map store/                                  hosts that lose most, and whose the loss is
  ullage fleet-map store/ --since 24h --out map.html       the map of all GPUs, and an area for each owner and cause
  ullage fleet-map week.parquet --jobs sacct.txt --by user  owners by user
  ullage fleet-map store/ --where 'model=H100' --json      a part of the fleet, for a program
"""

QUESTION = register(
    RegisteredQuestion(
        name="fleet-map",
        asked=FleetMapQuestion,
        noun="a fleet's map",
        answer=answer,
        shown_by="ullage.render.fleet_map",
        examples=_EXAMPLES,
        read_places=lambda question: [*question.sources, *question.jobs],
        status_3="only a part of the source could be read",
    )
)

fleet_map = python_function(QUESTION)
