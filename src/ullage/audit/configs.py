"""The models of a fleet's jobs: a folder of configurations, one per job or job name, each with the step that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, did_you_mean, harmless
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

    The step is the section `step` of the configuration, or `NAME.step.json`. A file is read when its name is asked for.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UllageError(f"there is no folder '{folder}' with configurations", "name a folder of NAME.json, a file for each job name")
        members = sorted(folder.iterdir())
        self.folder = folder
        self.steps = {p.name.removesuffix(".step.json"): p for p in members if p.name.endswith(".step.json")}
        self.files = {p.stem if p.is_file() else p.name: p for p in members if _is_config(p)}
        if not self.files:
            raise UllageError(f"the folder '{folder}' holds no configuration", "it takes NAME.json, or a folder NAME with a config.json")
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
        return DescribedJob(Config(values, config.place), _checked(step, place))


def _is_config(path: Path) -> bool:
    if path.is_dir():
        return any((path / name).is_file() for name in ("config.json", "model_index.json"))
    return path.suffix == ".json" and not path.name.endswith(".step.json")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wholes(value: Any) -> bool:
    return isinstance(value, list) and all(_whole(v) for v in value)


def _one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: value in words


def _words(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))


def _by_word(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(of(v) for v in value.values())


_WHOLE = (
    *("batch", "seq", "encoder_seq", "decoder_seq", "context", "image_tokens", "reference_tokens", "audio_frames", "timesteps"),
    *("forward_passes", "accumulation", "padded_seq", "freeze_layers", "lora_rank", "gpus"),
)
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(_WHOLE, (_whole, "a whole number")),
    **dict.fromkeys(("seqlens", "latent"), (_wholes, "a list of whole numbers")),
    **dict.fromkeys(("latent_tokens", "prompt_tokens"), (lambda v: _whole(v) or _wholes(v), "a whole number, or a list of them")),
    **dict.fromkeys(("image", "grid"), (lambda v: isinstance(v, list) and all(map(_wholes, v)), "a list of lists of whole numbers")),
    **dict.fromkeys(("forward_only", "reentrant"), (lambda v: isinstance(v, bool), "true or false")),
    **dict.fromkeys(("recompute", "freeze", "lora_targets"), (_words, "a word, or a list of words")),
    "logits": (_one_of("all", "last"), "all or last"),
    "attention": (_one_of("causal", "full"), "causal or full"),
    "backward": (_one_of("twice", "exact"), "twice or exact"),
    **dict.fromkeys(("config_kind", "imitate"), (lambda v: isinstance(v, str), "a word")),
    "precision": (lambda v: isinstance(v, str) or _by_word(lambda p: isinstance(p, str))(v), "a precision, or one for each kind of work"),
    "layout": (_by_word(_whole), "sizes, such as {\"dp\": 8, \"tp\": 4}"),
}  # fmt: skip
_LISTED = ("freeze", "lora_targets")


def _checked(step: Any, place: str) -> dict[str, Any]:
    """Return a step's words, each of its kind; raises UllageError that names the word and the file."""
    if not isinstance(step, Mapping):
        raise UllageError(f"'{SECTION}' of {place} is no section of fields", 'write {"batch": 512, "seq": 4096}')
    found: dict[str, Any] = {}
    for word, value in step.items():
        if word not in _KINDS:
            raise UllageError(f"'{SECTION}' of {place} has '{harmless(word, 60)}'", did_you_mean(word, _KINDS, "ullage flops --help"))
        fits, kind = _KINDS[word]
        if not fits(value):
            raise UllageError(f"'{word}' of {place} is {harmless(repr(value), 60)}, and must be {kind}")
        found[word] = [value] if word in _LISTED and isinstance(value, str) else value
    if found.get("recompute") not in (None, "none", "full") and isinstance(found["recompute"], str):
        found["recompute"] = [found["recompute"]]
    return found
