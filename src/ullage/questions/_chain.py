"""From peak to MFU, factor by factor, of one job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ullage.questions._samples import window_of
from ullage.questions._steps import step_question

Place = str | os.PathLike[str]

if TYPE_CHECKING:
    from ullage.reports.waterfall.waterfall import WaterfallReport
    from ullage.sources.source import Options


def waterfall(
    *sources: Place,
    telemetry: Place | Sequence[Place] = (),
    job: str | None = None,
    jobs: Place | Sequence[Place] = (),
    trace: Place | Sequence[Place] = (),
    window: str = "auto",
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    gemms: str | os.PathLike[str] | None = None,
    hours_back: float | None = None,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
    **asked: Any,
) -> WaterfallReport:
    """Return the chain from peak to MFU of one job, from whatever is known; the command `ullage waterfall` prints the same.

    `sources` are told by content, and a folder with a configuration and other sources is all of them; `telemetry`, `trace`, `config`
    and `gemms` say what a place is. `job` is whose samples count, `jobs` are job records, `hours_back` limits telemetry. `window` is the
    traces': "steps", "first-last" or "A:B" seconds; "auto" takes steps where they have profiler steps, else first-last. By hand:
    `ofu`, `mfu`, `tile_efficiency`, `model_efficiency` (ratios),
    `ceiling` (FLOP/s, a file of measured ceilings, or "measured": what `ullage bench --save` kept of this GPU), `price` of a
    GPU-hour, `hours` or `steps` that the job ran, `error` (OFU's, relative). The step is described as for `flops`; a section "step"
    of the configuration says what isn't given. Raises UllageError for what the user can fix, and where nothing is known.
    """
    from ullage.reports.waterfall.ceiling import with_measured
    from ullage.reports.waterfall.named import NamedSources, placed
    from ullage.reports.waterfall.sources import read
    from ullage.reports.waterfall.waterfall import waterfall as answer

    named = NamedSources(_places(sources), _places(telemetry), _places(trace), config, gemms, job, _places(jobs), window)
    places, given = placed(named, asked, step_question, window_of(options, hours_back, None, None), progress or (lambda _: None))
    found = read(places)
    return answer(found, with_measured(given, found))


def _places(named: Place | Sequence[Place]) -> tuple[str, ...]:
    """Return the places of one name or of several.

    >>> _places("job.parquet"), _places(["a", "b"])
    (('job.parquet',), ('a', 'b'))
    """
    several = [named] if isinstance(named, str | os.PathLike) else named
    return tuple(os.fspath(place) for place in several)
