"""Where configurations come from: a mapping, a Hugging Face config.json, a diffusers folder. Nothing in them is ever executed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.models.config import Config

LARGEST = 16 << 20  # bytes; the longest real configurations are a few hundred kB (label names)
DENOISERS = ("transformer", "unet", "transformer_2")  # components of a pipeline that are run at every timestep, the first one found


def read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> Config:
    """Return the configuration in a mapping, a JSON file, or a folder with config.json or model_index.json.

    A diffusers folder yields its denoiser's fields, under the pipeline's name. Raises UllageError for what is missing, too
    large, no JSON object, or points outside its folder.
    """
    if isinstance(source, Mapping):
        return Config(source)
    path = Path(source)
    if path.is_dir():
        return _folder(path)
    if path.name == "model_index.json":
        return _pipeline(path.parent)
    return Config(_object(path), str(source))


def _folder(folder: Path) -> Config:
    if (folder / "model_index.json").exists():
        return _pipeline(folder)
    for name in ("config.json", *(f"{component}/config.json" for component in DENOISERS)):
        if (folder / name).is_file():
            return Config(_object(_inside(folder, name)), str(folder / name))
    raise UllageError(f"{folder} has no config.json and no model_index.json", "name a config.json, or a folder that save_pretrained wrote")


def _pipeline(folder: Path) -> Config:
    index = _object(folder / "model_index.json")
    for word in index:
        if "/" in word or "\\" in word or word in (".", ".."):
            raise UllageError(
                f"{folder / 'model_index.json'} names the component '{harmless(word, 80)}', outside its folder",
                "name a component of that folder",
            )
    component = next((name for name in DENOISERS if _names_class(index.get(name))), None)
    if component is None:
        listed = ", ".join(harmless(k, 40) for k in index if not k.startswith("_")) or "nothing"
        raise UllageError(
            f"{folder / 'model_index.json'} has no {' or '.join(DENOISERS)}", f"it has {listed}; name that part's config.json"
        )
    file = _inside(folder, f"{component}/config.json")
    values = _object(file)
    names = [n for n in (index.get("_class_name"), values.get("_class_name")) if isinstance(n, str)]
    told = {k: v for k, v in index.items() if not k.startswith("_") and not isinstance(v, list)}  # settings, such as expand_timesteps
    if _names_class(index.get("controlnet")):
        values = {**values, "controlnet": _object(_inside(folder, "controlnet/config.json"))}
    return Config({**told, **values, "architectures": names}, str(file))


def _names_class(entry: Any) -> bool:
    """Whether an entry of model_index.json is there: ["diffusers", "WanTransformer3DModel"], not [null, null]."""
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)


def _inside(folder: Path, name: str) -> Path:
    """Return a file of the folder; one that a link leads out of it is refused."""
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise UllageError(f"{file} leads outside its folder", "copy the file into it")
    return file


def _decoded(content: bytes) -> Any:
    """Return what JSON says; Python's Infinity is read as well, for released configurations have it (`time_step_limit`)."""
    import json

    import msgspec

    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        with suppress(ValueError):
            return json.loads(content, parse_constant=_infinity)
        raise


def _infinity(word: str) -> float:
    if "Infinity" not in word:
        raise ValueError(word)
    return float(word)


def _object(file: Path) -> dict[str, Any]:
    import msgspec

    try:
        if not file.is_file():
            raise UllageError(f"there is no file {file}", "name a config.json, a folder with one, or a diffusers folder")
        size = file.stat().st_size
        if size > LARGEST:
            raise UllageError(f"{file} is {size:,} bytes long, which is no configuration", "name the config.json, not the weights")
        values = _decoded(file.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UllageError(f"{file} is not JSON: {harmless(str(error), 120)}", "name the config.json of the model") from None
    except OSError as error:
        raise UllageError(f"{file} can't be read: {error.strerror}", "check the path and its permissions") from None
    if not isinstance(values, dict):
        raise UllageError(f"{file} holds a {type(values).__name__}, not an object of fields", "name the config.json of the model")
    return values
