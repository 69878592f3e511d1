"""A real model from a configuration: of the library's own classes, without weights and without running anything the configuration names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.models.config import MOST, MOST_LAYERS, Config
from ullage.models.model import MODELS, names
from ullage.models.tracing.libraries import alone, installed, library

DEEPEST = 64  # sections in sections
# What chooses code or weights instead of describing the model, wherever it stands
_DROPPED = frozenset(
    (
        *("auto_map", "custom_pipelines", "name_or_path", "quantization_config", "compression_config", "transformers_version"),
        *("torch_dtype", "dtype", "attn_implementation", "experts_implementation", "use_kernels", "use_mamba_kernels"),
    )
)
_ALWAYS = {"layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "use_pretrained_backbone": False}
# The heads of the library's automatic classes, in the order in which a bare model_type is taken, by the kind of model
_TEXT = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "SEQUENCE_CLASSIFICATION")
_HEADS = {
    "encoder": ("SEQUENCE_CLASSIFICATION", "MASKED_LM"),
    "encoder-decoder": ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ"),
    "vision": ("IMAGE_CLASSIFICATION", "ZERO_SHOT_IMAGE_CLASSIFICATION"),
    "vision-language": ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "ZERO_SHOT_IMAGE_CLASSIFICATION"),
    "audio": ("SPEECH_SEQ_2_SEQ", "CTC", "AUDIO_CLASSIFICATION"),
}


@dataclass(frozen=True)
class ModelPlace:
    """Where a model lives: weights on `device`, whole numbers (tokens, grids) on `integers`; "meta" holds shapes without values."""

    device: str
    integers: str


META = ModelPlace("meta", "meta")
COUNTING = ModelPlace("meta", "cpu")  # for models whose shapes depend on token ids or image grids
REAL = ModelPlace("cpu", "cpu")
MOST_REAL = 400_000_000  # parameters that are held in memory


def built(config: Config, place: ModelPlace = META) -> Any:
    """Return the model that a configuration describes, from transformers or diffusers, in training mode.

    Attention is eager and experts are grouped products, so that every product is seen. Raises UllageError when neither
    library has the class, when it refuses the configuration, and when a model for the CPU is too large.
    """
    values = _described(config)
    torch = library("torch")
    kind = _model_class(config, values)
    if place.device != "meta":
        _refuse_large(built(config, META), config)
    with alone(), _real_numbers(torch, place):
        try:
            model = _constructed(kind, values)
        except Exception as error:  # the libraries raise anything for a configuration that they refuse
            raise refused(kind, config, error) from error
    if hasattr(model, "set_experts_implementation"):
        _grouped(model)
    return model.train()


def refused(kind: Any, config: Config, error: Exception) -> UllageError:
    """Return the error for a configuration that the library's class does not take."""
    words = harmless(" ".join(str(error).split()) or type(error).__name__, 200)
    return UllageError(f"{kind.__name__} of {_package(kind)} refuses {config.place}: {words}", "correct the field, or update the library")


def _constructed(kind: Any, values: dict[str, Any]) -> Any:
    if _package(kind) == "diffusers":
        return kind.from_config(values)
    settings = kind.config_class.from_dict({k: v for k, v in values.items() if k not in ("architectures", "_class_name")})
    _eager(settings)
    return kind(settings)


def _eager(settings: Any) -> None:
    settings._attn_implementation = "eager"
    for value in vars(settings).values():
        if hasattr(value, "_attn_implementation"):
            _eager(value)


def _grouped(model: Any) -> None:
    try:
        model.set_experts_implementation("grouped_mm")
    except Exception:  # a model without experts refuses
        return


@contextmanager
def _real_numbers(torch: Any, place: ModelPlace) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if place.device == "meta" else torch.float32)
    try:
        with torch.device(place.device):
            yield
    finally:
        torch.set_default_dtype(before)


def _refuse_large(model: Any, config: Config) -> None:
    held = sum(p.numel() for p in model.parameters())
    if held > MOST_REAL:
        raise UllageError(
            f"{config.place} needs real numbers to be traced (its shapes depend on data), and {held:,} parameters do not fit",
            f"certify the same model with fewer layers, up to {MOST_REAL:,} parameters",
        )


def _model_class(config: Config, values: Mapping[str, Any]) -> Any:
    """Return the library's class: by the names that the configuration gives, then by its model_type."""
    asked = [config.architecture, *names(config)]
    for name in asked:
        kind = _named(name)
        if kind is not None:
            return kind
    kind = _by_type([*asked, values.get("model_type")])
    if kind is not None:
        return kind
    name = harmless(next((n for n in asked if n), "without a name"), 80)
    raise UllageError(
        f"neither transformers nor diffusers has the architecture '{name}' of {config.place}",
        "pip install 'ullage[certify]', or a newer release of the library; nothing that a configuration names is downloaded or run",
    )


def _named(name: str) -> Any | None:
    """Return the class of this name, if it is a model of one of the libraries."""
    if not name.isidentifier() or name.startswith("_"):
        return None
    for package, base in (("transformers", "PreTrainedModel"), ("diffusers", "ModelMixin")):
        module = installed(package)
        kind = getattr(module, name, None) if module is not None else None
        if inspect.isclass(kind) and _package(kind) == package and issubclass(kind, getattr(module, base)):
            return kind
    return None


def _by_type(asked: Sequence[Any]) -> Any | None:
    transformers = library("transformers")
    auto = library("transformers.models.auto.modeling_auto")
    known = library("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    for name in (n for n in asked if isinstance(n, str) and n in known):
        family = MODELS[name].kind if name in MODELS else "decoder"
        for head in (*_HEADS.get(family, ()), *_TEXT, "IMAGE_CLASSIFICATION", ""):
            mapping = getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES" if head else "MODEL_MAPPING_NAMES", {})
            found = mapping.get(name)
            if isinstance(found, str) and hasattr(transformers, found):
                return getattr(transformers, found)
        only = _only_model_of(known[name])
        if only is not None:
            return only
    return None


def _only_model_of(settings: Any) -> Any | None:
    """Return the one model that is built from this class of configurations (a vision tower, say)."""
    module = installed(settings.__module__.replace(".configuration_", ".modeling_"))
    base: Any = library("transformers").PreTrainedModel
    found = [
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, base) and kind.__module__ == module.__name__
        and getattr(kind, "config_class", None) is settings and "forward" in vars(kind)
    ] if module is not None else []  # fmt: skip
    return found[0] if len(found) == 1 else None


def _package(kind: Any) -> str:
    return str(kind.__module__).partition(".")[0]


def _described(config: Config) -> dict[str, Any]:
    """Return the fields that describe the model, without those that would choose code, weights or a place."""
    cleaned = _cleaned(config.values, config, "", 0)
    assert isinstance(cleaned, dict)
    return cleaned


def _cleaned(value: Any, config: Config, where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise UllageError(f"{config.place} has sections {DEEPEST} deep", "no model needs them; correct the file")
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if isinstance(k, str) and _describes(k)}
        return {k: _ALWAYS[k] if k in _ALWAYS else _cleaned(v, config, f"{where}{k}.", depth + 1) for k, v in kept.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(v, config, where, depth + 1) for v in value]
    _refuse_huge(value, config, where)
    return value


def _describes(field: str) -> bool:
    return field not in _DROPPED and (not field.startswith("_") or field == "_class_name")


def _refuse_huge(value: Any, config: Config, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        return
    layers = any(word in where for word in ("layers", "depth", "blocks", "n_layer"))
    most = MOST_LAYERS if layers and "window" not in where else MOST
    if abs(value) > most:
        raise UllageError(
            f"{where.rstrip('.')} of {config.place} is {value:,}, and may be {most:,} at most", "correct the field; nothing is guessed"
        )
