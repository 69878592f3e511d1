"""What somebody names for a waterfall, sorted into the places of its sources and what is said by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ullage.audit.configs import SECTION
from ullage.errors import UllageError, harmless
from ullage.gpus.measured import ChosenCeiling, load
from ullage.models.config import Config
from ullage.models.reading import read_config
from ullage.models.shapes import forward_passes
from ullage.profiles import ProfileRequest
from ullage.reports.flops import StepQuestion
from ullage.reports.waterfall.ceiling import MEASURED
from ullage.reports.waterfall.inputs import sorted_by_kind
from ullage.reports.waterfall.known import GivenByHand
from ullage.reports.waterfall.sources import JobSources
from ullage.sources.source import Options
from ullage.sums.lanes.window import parse
from ullage.traces.trace import TraceOptions

BY_HAND = {"ofu": "ofu", "mfu": "mfu", "tile_efficiency": "tile", "model_efficiency": "model"}
SAID = ("price", "hours", "steps", "error")
OF_A_JOB = ("gpus", "gpu", "peak_tflops", "layout", "precision")  # what says something of a job without a model's step, too


@dataclass(frozen=True)
class NamedSources:
    """Places as they were named: `sources` are to be told by content, of the others it is said what they are."""

    sources: tuple[str, ...] = ()
    telemetry: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None
    gemms: str | os.PathLike[str] | None = None
    job: str | None = None
    jobs: tuple[str, ...] = ()
    window: str = "auto"


def placed(
    named: NamedSources,
    asked: Mapping[str, Any],
    question: Callable[..., StepQuestion],
    options: Options,
    progress: Callable[[str], None],
) -> tuple[JobSources, GivenByHand]:
    """Return where a job's sources lie, and what is said by hand. `asked` holds that and the words of a step; `question` reads these.

    Raises UllageError for a place that nobody recognises, for two models, and for words of a step without a model.
    """
    found = sorted_by_kind(named.sources)
    config = _one("configurations", [*([] if named.config is None else [named.config]), *found.get("config", [])])
    gemms = _one("lists of matrix products", [*([] if named.gemms is None else [named.gemms]), *found.get("gemms", [])])
    words = {word: value for word, value in asked.items() if word not in BY_HAND and word not in SAID and word != "ceiling"}
    model, step = _step(config, words, question)
    places = JobSources(
        telemetry=(*named.telemetry, *found.get("telemetry", [])),
        jobs=named.jobs,
        job=named.job,
        trace=(*named.trace, *found.get("trace", [])),
        config=model,
        step=step,
        gemms=None if gemms is None else Path(str(gemms)).expanduser(),
        gpu=step.gpu,
        options=replace(options, progress=progress),
        asked=ProfileRequest(parse(named.window), options=TraceOptions(progress=progress)),
        progress=progress,
    )
    return places, _given(asked, step)


def _one(what: str, places: list[Any]) -> Any:
    if len(places) > 1:
        raise UllageError(
            f"there are {len(places)} {what}: {', '.join(harmless(str(p), 80) for p in places)}", "a waterfall is one job's: name one"
        )
    return places[0] if places else None


def _step(config: Any, words: Mapping[str, Any], question: Callable[..., StepQuestion]) -> tuple[Config | None, StepQuestion]:
    """Return the model and the question about its step; what was asked goes before what the configuration's own section says."""
    if config is None:
        for word, value in words.items():
            if value is not None and word not in OF_A_JOB:
                raise UllageError(
                    f"--{word.replace('_', '-')} describes a model's step, and there is no model", "name its config.json: --config"
                )
        return None, question(**words)
    model, section = step_of(read_config(config))
    merged = {**section, **words}
    scale = merged.pop("guidance_scale", None)
    if scale is not None:
        merged["forward_passes"] = forward_passes(model, merged.get("forward_passes"), scale)
    try:
        return model, question(**merged)
    except TypeError as error:
        raise UllageError(
            f"'{SECTION}' of {model.place} has a value of the wrong kind: {harmless(str(error), 120)}", "see docs/flops.md"
        ) from error


def step_of(config: Config) -> tuple[Config, dict[str, Any]]:
    """Return a configuration without its section `step`, and the section: a step in the words of `ullage.flops`."""
    section = config.values.get(SECTION) or {}
    if not isinstance(section, Mapping):
        raise UllageError(f"'{SECTION}' of {config.place} is no section of fields", 'write {"batch": 512, "seq": 4096, "step_time": 21.0}')
    values = {name: value for name, value in config.values.items() if name != SECTION}
    return replace(config, values=values), dict(section)


def _given(asked: Mapping[str, Any], step: StepQuestion) -> GivenByHand:
    said: dict[str, Any] = {name: asked[word] for word, name in BY_HAND.items() if asked.get(word) is not None}
    said |= {name: asked[name] for name in SAID if asked.get(name) is not None}
    if asked.get("ceiling") == MEASURED:
        said["measured_at"] = step.precisions.get("*", "bf16")
    elif asked.get("ceiling") is not None:
        chosen, memory = ceiling(asked["ceiling"], step.precisions.get("*", "bf16"))
        said |= {"ceiling": chosen.value, "ceiling_source": chosen.source, "ceiling_caution": chosen.caution, "memory": memory}
    return GivenByHand(**said)


def ceiling(text: str | float, precision: str) -> tuple[ChosenCeiling, ChosenCeiling | None]:
    """Return a measured ceiling and the memory's bandwidth beside it: a number in FLOP/s, or what a file of `ullage bench --save` has.

    >>> ceiling("800e12", "bf16")
    (ChosenCeiling(value=800000000000000.0, source='given', caution=''), None)
    """
    try:
        return ChosenCeiling(float(text), "given"), None
    except ValueError:
        pass
    path = Path(str(text)).expanduser()
    if not path.is_file():
        raise UllageError(
            f"the ceiling '{harmless(str(text))}' is neither a number nor a file", f"give FLOP/s such as 800e12, a file, or '{MEASURED}'"
        )
    ceilings = load(path)
    found = ceilings.peak(precision)
    if found is None:
        raise UllageError(f"{path} has no measured ceiling at {precision}", f"it has {', '.join(ceilings.precisions) or 'none'}")
    return found, ceilings.memory
