"""Which mistakes explain a reported MFU: of one job, and of a fleet's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ullage.asking import question_of
from ullage.asking.step import StepDescription, step_question

if TYPE_CHECKING:
    from ullage.reports.audit.audit import AuditReport
    from ullage.reports.audit.fleet import FleetAudit
    from ullage.sources.source import Options


def audit_mfu(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    reported: float,
    ofu: float,
    tile_efficiency: float | None = None,
    error: float | None = None,
    node: int = 8,
    most: int = 10,
    **asked: Any,
) -> AuditReport:
    """Return which known mistakes explain a reported MFU beside OFU; the command `ullage audit mfu` prints the same.

    `reported`, `ofu` and `tile_efficiency` are ratios, `error` is OFU's relative error, `node` the GPUs of a machine; the job
    is described as for `flops`. Raises UllageError for what the user can fix.
    """
    from ullage.audit.mfu import OFU_ERROR
    from ullage.models.reading import read_config
    from ullage.reports.audit.audit import Reported
    from ullage.reports.audit.audit import audit_mfu as answer

    said = Reported(reported, ofu, tile_efficiency, OFU_ERROR if error is None else error, node)
    model, step = read_config(config), question_of(StepDescription, asked, noun="a step", command="ullage audit mfu --help")
    return answer(model, step.question(model), said, most=most)


def audit_fleet(
    source: str | Sequence[str],
    *,
    configs: str | os.PathLike[str],
    jobs: Sequence[str] = (),
    gpu: str | None = None,
    tile_efficiency: float | None = None,
    error: float | None = None,
    node: int = 8,
    options: Options | None = None,
) -> FleetAudit:
    """Return the audit of every MFU that the jobs of a fleet report; `ullage audit mfu --fleet` prints the same.

    `source`, `jobs` and `gpu` are as for `fleet`; `configs` is a folder with a configuration for each job or job name
    (`ullage.audit.configs.ConfigFolder`). Raises UllageError for what the user can fix; jobs that can't be audited are left out.
    """
    from pathlib import Path

    from ullage.audit.configs import ConfigFolder
    from ullage.audit.mfu import OFU_ERROR
    from ullage.intake import opened
    from ullage.models.config import Config
    from ullage.reports.audit.fleet import Measure
    from ullage.reports.audit.fleet import audit_fleet as answer
    from ullage.reports.fleet.fleet import FleetRequest as FleetQuestion
    from ullage.reports.fleet.fleet import fleet as measured
    from ullage.reports.flops import StepQuestion

    folder = ConfigFolder(Path(configs).expanduser())

    def describe(job: str, name: str | None) -> tuple[Config, StepQuestion] | None:
        found = folder.get(job, name)
        return None if found is None else (found.config, step_question(**found.step))

    since, until = (options.since, options.until) if options else (None, None)
    question = FleetQuestion(by="job", model=gpu, since=since, until=until)
    with opened([source] if isinstance(source, str) else source, jobs=jobs, options=options) as taken:
        report = taken.marked(measured(taken.samples, taken.jobs, question, taken.problems.lines()))
        return answer(report, taken.jobs, describe, Measure(tile_efficiency, OFU_ERROR if error is None else error, node))
