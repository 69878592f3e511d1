"""The models of a fleet's jobs: a folder of configurations, one per job or job name, each with the step that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.models.config import Config
from ullage.models.reading import read_config

SECTION = "step"  # of a config.json; or a file of its own beside it, NAME.step.json


@dataclass(frozen=True)
class DescribedJob:
    """A job's model and the step that it takes, in the words of `ullage.flops`."""

    config: Config
    step: Mapping[str, Any]


class ConfigFolder:
    """The configurations of a folder by name: `NAME.json`, or a folder `NAME` with a config.json or a model_index.json.

    The step is the section `step` of the configuration, or `NAME.step.json`; `read_step` reads it, and is told where it stands. A file is
    read when its name is asked for.
    """

    def __init__(self, folder: Path, read_step: Callable[[Any, str], Mapping[str, Any]]) -> None:
        if not folder.is_dir():
            raise UllageError(
                f"there is no folder '{harmless(str(folder))}' for --configs", "name a folder of NAME.json, a file for each job name"
            )
        members = sorted(folder.iterdir())
        self.folder, self.read_step = folder, read_step
        self.steps = {p.name.removesuffix(".step.json"): p for p in members if p.name.endswith(".step.json")}
        self.files = {p.stem if p.is_file() else p.name: p for p in members if _is_config(p)}
        if not self.files:
            raise UllageError(
                f"the folder '{harmless(str(folder))}' holds no configuration", "put NAME.json into it, or a folder NAME with a config.json"
            )
        self.read: dict[str, DescribedJob] = {}

    def get(self, *names: str | None) -> DescribedJob | None:
        """Return the configuration of the first name that has one; raises UllageError for a file that is none."""
        for name in names:
            if name in self.files:
                if name not in self.read:
                    self.read[name] = self._read(name)
                return self.read[name]
        return None

    def _read(self, name: str) -> DescribedJob:
        config = read_config(self.files[name])
        step = config.values.get(SECTION) or {}
        place = config.place
        if name in self.steps:
            place = str(self.steps[name])
            step = read_config(self.steps[name]).values
        values = {key: value for key, value in config.values.items() if key != SECTION}
        return DescribedJob(Config(values, config.place), self.read_step(step, place))


def _is_config(path: Path) -> bool:
    if path.is_dir():
        return any((path / name).is_file() for name in ("config.json", "model_index.json"))
    return path.suffix == ".json" and not path.name.endswith(".step.json")
