"""What a model of transformers is called with for a sample: tensors of the right shape, and values only where a shape hangs on them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ullage.models.config import Config
from ullage.models.sample import Sample
from ullage.models.tracing.build import ModelPlace
from ullage.models.tracing.libraries import library
from ullage.models.tracing.trials import Trial

TILED = ("idefics2", "idefics3", "smolvlm")  # whose images have a dimension of their own beside the batch
IMAGE_TOKENS = ("image_token_id", "image_token_index", "img_context_token_id", "image_pad_token_id")


def arguments(model: Any, config: Config, trial: Trial, place: ModelPlace) -> dict[str, Any]:
    """Return the keyword arguments for one call of a model's forward, by the names that it takes."""
    takes = inspect.signature(model.forward).parameters
    made: dict[str, Any] = {}
    for name, make in _MAKERS.items():
        if name in takes:
            value = make(_Call(model, config, trial, place, takes))
            if value is not None:
                made[name] = value
    if "use_cache" in takes:
        made["use_cache"] = False
    return made


class _Call:
    """What a maker of an argument may look at."""

    def __init__(self, model: Any, config: Config, trial: Trial, place: ModelPlace, takes: Mapping[str, Any]) -> None:
        self.model, self.config, self.batch, self.sample, self.place, self.takes = model, config, trial.batch, trial.sample, place, takes

    @property
    def settings(self) -> Any:
        """The library's own reading of the configuration."""
        return self.model.config

    def setting(self, *names: str, default: Any = None) -> Any:
        """Return a field of the vision section or, without one, of the whole."""
        for section in (getattr(self.settings, "vision_config", None), self.settings):
            for name in names:
                if getattr(section, name, None) is not None:
                    return getattr(section, name)
        return default

    def tokens(self, length: int) -> Any:
        """Return token ids: all the same, nowhere a special one."""
        return library("torch").ones((self.batch, length), dtype=library("torch").long, device=self.place.integers)

    def whole(self, values: Any) -> Any:
        """Return whole numbers, the same of every sample; nothing where there are none."""
        torch = library("torch")
        return torch.tensor(list(values) * self.batch, dtype=torch.long, device=self.place.integers) if values else None

    def reals(self, *shape: int) -> Any:
        """Return real numbers in the model's precision."""
        torch = library("torch")
        first = next(self.model.parameters())
        return torch.ones(shape, dtype=first.dtype, device=self.place.device)  # images of zeros are taken for padding


def _input_ids(call: _Call) -> Any:
    sample = call.sample
    length = sample.encoder if "decoder_input_ids" in call.takes else sample.text or sample.encoder
    if not length:
        return None
    ids = call.tokens(length)
    token = next((t for n in IMAGE_TOKENS if isinstance(t := getattr(call.settings, n, None), int)), None)
    if token is not None and call.place.integers != "meta":
        ids[:, _image_places(call)] = token
    sound = getattr(call.settings, "audio_token_index", None) or getattr(call.settings, "audio_token_id", None)
    if sound is not None and call.place.integers != "meta":
        ids[:, : _sound_tokens(call)] = sound
    return ids


def _sound_tokens(call: _Call) -> int:
    """Return how many tokens of the text stand for sound: one for four frames, or for eight of each chunk, rounded up."""
    section, frames = getattr(call.settings, "audio_config", call.settings), call.sample.audio
    if not hasattr(section, "downsample_hidden_size"):
        return frames // 4
    size = 2 * int(section.n_window)
    return frames // size * -(-size // 8)


def _image_places(call: _Call) -> list[int]:
    """Return which tokens of the text stand for images, a word between one image and the next."""
    if call.sample.pixels:
        return list(range(_features(call)))
    side = int(call.setting("spatial_merge_size", "pooling_kernel_size", "downsample_factor", default=0)) or round(
        1 / call.setting("pixel_shuffle_ratio", default=1)
    )
    sizes = [t * h * w // side**2 for t, h, w in call.sample.grids] or [call.sample.image_tokens]
    if merged := call.setting("merge_kernel_size"):  # frames are averaged
        sizes = [h * w // (merged[0] * merged[1]) for _, h, w in call.sample.grids]
    starts = [sum(sizes[:i]) + i for i in range(len(sizes))]
    return [start + i for start, size in zip(starts, sizes, strict=True) for i in range(size)]


def _features(call: _Call) -> int:
    """Return how many vectors a model makes of each sample's images: as many tokens of the text stand for them."""
    torch = library("torch")
    seeing = call.model if hasattr(call.model, "get_image_features") else call.model.model
    wanted = inspect.signature(seeing.get_image_features).parameters
    given = {name: _MAKERS[name](call) for name in ("pixel_values", "image_sizes") if name in wanted}
    with torch.no_grad():
        made = seeing.get_image_features(**given)
    leaves, _ = library("torch.utils._pytree").tree_flatten(getattr(made, "pooler_output", made))
    width = int(leaves[0].shape[-1])
    return sum(int(t.numel()) for t in leaves) // width // call.batch


def _image_sizes(call: _Call) -> Any:
    of_any_size = getattr(getattr(call.settings, "vision_config", None), "model_type", "") == "pixtral"
    if not call.sample.pixels or not (of_any_size or _canvases(call)):
        return None
    return call.whole(call.sample.pixels)


def _pixel_values(call: _Call) -> Any:
    sample = call.sample
    channels = int(call.setting("num_channels", "in_channels", "in_chans", default=3))
    if sample.grids and _patched(call):
        return call.reals(
            call.batch * len(sample.grids), _patches(sample) // len(sample.grids), channels * int(call.setting("patch_size")) ** 2
        )
    if sample.grids and call.setting("merge_kernel_size"):
        side = int(call.setting("patch_size"))
        return call.reals(call.batch * _patches(sample), channels, side, side)
    if sample.grids and call.setting("temporal_patch_size") is None:
        side = int(call.setting("image_size"))
        return call.reals(call.batch * len(sample.grids), channels, side, side)
    if sample.grids:
        patch, frames = int(call.setting("patch_size")), int(call.setting("temporal_patch_size", default=1))
        return call.reals(call.batch * _patches(sample), channels * frames * patch * patch)
    if not sample.pixels:
        return None
    height, width = sample.pixels[0]
    if _canvases(call):  # the library's own function says into how many tiles it expects an image to be cut
        side = int(call.settings.vision_config.image_size)
        count = inspect.getmodule(type(call.model)).image_size_to_num_patches((height, width), _canvases(call), side)  # type: ignore
        return call.reals(call.batch * len(sample.pixels), count, channels, side, side)
    if str(getattr(call.settings, "model_type", "")) in TILED:
        return call.reals(call.batch, len(sample.pixels), channels, height, width)
    return call.reals(call.batch * len(sample.pixels), channels, height, width)


def _patched(call: _Call) -> bool:
    """Whether a model takes the patches of each image, side by side with those of the others, instead of its pixels."""
    vision = str(getattr(getattr(call.settings, "vision_config", None), "model_type", ""))
    return vision.startswith("siglip2") or call.setting("pooling_kernel_size") is not None


def _shapes(call: _Call) -> Any:
    """Return the rows and columns of each image's patches."""
    return call.whole([[rows, columns] for _, rows, columns in call.sample.grids])


def _canvases(call: _Call) -> Any:
    """Return the sizes among which a model chooses one for an image that it cuts into tiles."""
    return getattr(call.settings, "image_grid_pinpoints", None)


def _patches(sample: Sample) -> int:
    return sum(t * h * w for t, h, w in sample.grids)


def _places(call: _Call) -> Any:
    """Return the column and row of every patch, image by image; all images of a sample have as many patches."""
    grids = call.sample.grids
    return call.whole([[[column, row] for row in range(rows) for column in range(columns)] for _, rows, columns in grids])


def _unpadded(call: _Call) -> Any:
    """Return a mask of each image's patches, none of them padding."""
    torch, grids = library("torch"), call.sample.grids
    if not grids or not _patched(call):
        return None
    shape = (call.batch * len(grids), _patches(call.sample) // len(grids))
    return torch.ones(shape, dtype=torch.long, device=call.place.integers)


def _mel(call: _Call) -> Any:
    if not call.sample.audio:
        return None
    section = getattr(call.settings, "audio_config", call.settings)
    return call.reals(call.batch, int(section.num_mel_bins), call.sample.audio)


def _heard(call: _Call) -> Any:
    """Return a mask of frames, none of them padding."""
    torch = library("torch")
    return torch.ones((call.batch, call.sample.audio), dtype=torch.long, device=call.place.integers) if call.sample.audio else None


def _token_types(call: _Call) -> Any:
    """Return zeros for models that insist on them in training (Gemma 3); they mark which tokens are images."""
    if call.takes["token_type_ids"].default is not inspect.Parameter.empty and not _wants_types(call):
        return None
    return library("torch").zeros_like(call.tokens(call.sample.text))


def _modalities(call: _Call) -> Any:
    """Return one for the tokens of images, and zero for text."""
    kinds = library("torch").zeros_like(call.tokens(call.sample.text))
    if call.place.integers != "meta":
        kinds[:, _image_places(call)] = 1
    return kinds if call.sample.grids else None


def _wants_types(call: _Call) -> bool:
    return str(getattr(call.settings, "model_type", "")).startswith(("gemma3", "paligemma"))


_MAKERS = {
    "input_ids": _input_ids,
    "decoder_input_ids": lambda call: call.tokens(call.sample.text) if call.sample.text else None,
    "pixel_values": _pixel_values,
    "image_sizes": _image_sizes,
    "image_grid_thw": lambda call: call.whole(call.sample.grids),
    "grid_thw": lambda call: call.whole(call.sample.grids),
    "image_position_ids": _places,
    "spatial_shapes": _shapes,
    "pixel_attention_mask": _unpadded,
    "hidden_states": lambda call: _pixel_values(call) if call.sample.grids else None,  # of a vision tower on its own
    "input_features": _mel,
    "feature_attention_mask": _heard,
    "input_features_mask": _heard,
    "token_type_ids": _token_types,
    "mm_token_type_ids": _modalities,
}
