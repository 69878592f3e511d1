"""What a denoiser of diffusers is called with for a sample: latents in its layout, a prompt, a timestep and what else it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ullage.models.config import Config
from ullage.models.tracing.build import ModelPlace
from ullage.models.tracing.libraries import library
from ullage.models.tracing.trials import Trial, layout

PROMPT_WIDTHS = (
    *("text_dim", "text_embed_dim", "cross_attention_input_dim", "caption_channels", "joint_attention_dim", "cap_feat_dim"),
    *("text_hidden_dim", "encoder_hid_dim", "cross_attention_dim"),
)


def entry(model: Any, architecture: str) -> Any:
    """Return what is run of a model: all of it, or the half that its name asks for ("AutoencoderKL.decode")."""
    half = architecture.rpartition(".")[2]
    return getattr(model, half) if half in ("encode", "decode") else model.forward


def arguments(model: Any, config: Config, trial: Trial, place: ModelPlace) -> dict[str, Any]:
    """Return the keyword arguments for one call of a denoiser or autoencoder, by the names that it takes."""
    call = _Call(model, config, trial, place)
    takes = inspect.signature(entry(model, config.architecture)).parameters
    made = {name: make(call) for name, make in _MAKERS.items() if name in takes}
    return {name: value for name, value in made.items() if value is not None}


class _Call:
    """What a maker of an argument may look at."""

    def __init__(self, model: Any, config: Config, trial: Trial, place: ModelPlace) -> None:
        self.model, self.config, self.batch, self.sample, self.place = model, config, trial.batch, trial.sample, place
        self.kind = type(model).__name__
        self.latent = trial.sample.latent or (1, 1, 1)

    def setting(self, *names: str, default: Any = None) -> Any:
        """Return the first of the model's fields that is there."""
        for name in names:
            value = getattr(self.model.config, name, None)
            if value is not None:
                return value
        return default

    def reals(self, *shape: int) -> Any:
        """Return real numbers in the model's precision."""
        dtype = next(self.model.parameters()).dtype
        return library("torch").zeros(shape, dtype=dtype, device=self.place.device)

    def whole(self, *shape: int) -> Any:
        """Return whole numbers, all one: masks, labels."""
        torch = library("torch")
        return torch.ones(shape, dtype=torch.long, device=self.place.integers)

    @property
    def patched(self) -> tuple[int, int, int]:
        """The grid of tokens of a model that takes them packed: Flux and its like pack 2 × 2, LTX what its patch says."""
        side, deep = 2, 1
        if self.kind.startswith("LTX"):
            side, deep = self.setting("patch_size", default=1), self.setting("patch_size_t", default=1)
        frames, rows, columns = self.latent
        return frames // deep, rows // side, columns // side

    @property
    def tokens(self) -> int:
        """Packed latent tokens, with those of a reference."""
        frames, rows, columns = self.patched
        return frames * rows * columns + self.sample.reference_tokens


def _latents(call: _Call) -> Any:
    channels = int(call.setting("in_channels", default=4))
    frames, rows, columns = call.latent
    arrangement = layout(call.kind)
    if arrangement == "packed":
        return call.reals(call.batch, call.tokens, channels)
    if arrangement == "video":
        return call.reals(call.batch, channels, frames, rows, columns)
    if arrangement == "frames first":
        return call.reals(call.batch, frames, channels, rows, columns)
    if arrangement == "sound":
        return call.reals(call.batch, channels, columns)
    return call.reals(call.batch, channels, rows, columns)


def _prompt(call: _Call) -> Any:
    width = call.setting(*PROMPT_WIDTHS)
    width = width[0] if isinstance(width, list | tuple) else width
    return call.reals(call.batch, call.sample.prompt, int(width)) if width and call.sample.prompt else None


def _timestep(call: _Call) -> Any:
    if call.kind.startswith("WanTransformer") and call.config.values.get("expand_timesteps"):
        return call.reals(call.batch, call.tokens)
    return call.reals(call.batch)


def _image_shapes(call: _Call) -> Any:
    """Return each sample's grids; tokens of a reference stand as one row of their own."""
    grids = [call.patched, *([(1, 1, call.sample.reference_tokens)] if call.sample.reference_tokens else [])]
    return [grids] * call.batch


def _control_condition(call: _Call) -> Any:
    """Return the condition of a ControlNet: pixels for that of a UNet, else latents with what channels are added."""
    _, rows, columns = call.latent
    if call.kind == "ControlNetModel":
        return call.reals(call.batch, int(call.setting("conditioning_channels", default=3)), 8 * rows, 8 * columns)
    extra = int(call.setting("extra_conditioning_channels", "extra_condition_channels", default=0))
    channels = int(call.setting("in_channels", default=16)) + extra
    if layout(call.kind) == "packed":
        return call.reals(call.batch, call.tokens, channels)
    return call.reals(call.batch, channels, rows, columns)


def _added(call: _Call) -> Any:
    """Return the pooled prompt and sizes of SDXL, the resolution of PixArt."""
    if call.kind.startswith("PixArt"):
        known = call.model.use_additional_conditions
        return {"resolution": call.reals(call.batch, 2) if known else None, "aspect_ratio": call.reals(call.batch, 1) if known else None}
    if call.setting("addition_embed_type") != "text_time":
        return None
    width = int(call.setting("projection_class_embeddings_input_dim")) - 6 * int(call.setting("addition_time_embed_dim"))
    return {"text_embeds": call.reals(call.batch, width), "time_ids": call.reals(call.batch, 6)}


def _class_labels(call: _Call) -> Any:
    labelled = call.kind.startswith("DiT") or call.setting("num_class_embeds") or call.setting("class_embed_type") == "timestep"
    return call.whole(call.batch).to(call.place.device) if labelled else None


def _pixels(call: _Call) -> Any:
    """Return latents for a UNet, pixels for an autoencoder: eight a latent and, in a video, four frames after the first."""
    if call.kind.startswith("AutoencoderKL") and call.sample.latent:
        frames, rows, columns = call.sample.latent
        return call.reals(call.batch, int(call.setting("in_channels", "input_channels", default=3)), 4 * frames - 3, 8 * rows, 8 * columns)
    if not call.sample.pixels:
        return _latents(call)
    height, width = call.sample.pixels[0]
    return call.reals(call.batch, int(call.setting("in_channels", default=3)), height, width)


def _coded(call: _Call) -> Any:
    """Return what an autoencoder decodes: the grid of latents, or what pixels become when each stage but the last halves them."""
    channels = int(call.setting("latent_channels", "z_dim"))
    if call.sample.latent:
        return call.reals(call.batch, channels, *call.sample.latent)
    height, width = call.sample.pixels[0]
    smaller = 2 ** (len(call.setting("block_out_channels")) - 1)
    return call.reals(call.batch, channels, height // smaller, width // smaller)


def _one_by_one(call: _Call) -> Any:
    if call.kind.startswith("Autoencoder"):
        return _pixels(call)
    frames, rows, columns = call.latent
    return [call.reals(int(call.setting("in_channels", default=16)), frames, rows, columns) for _ in range(call.batch)]


Maker = Callable[[_Call], Any]


def _per_sample(*names: str, shape: Callable[[_Call], tuple[int, ...]] = lambda _: ()) -> Maker:
    """Return the maker of so many real numbers a sample as a field says, of some shape; nothing where there is no such field."""
    return lambda call: call.reals(call.batch, *shape(call), int(width)) if (width := call.setting(*names)) else None


def _rows(*sides: int) -> Maker:
    """Return the maker of real numbers of one shape for every sample."""
    return lambda call: call.reals(call.batch, *sides)


def _positions(count: Callable[[_Call], int]) -> Maker:
    """Return the maker of positions, a number for each axis of the rotary embedding."""
    return lambda call: call.reals(count(call), len(call.setting("axes_dims_rope", default=(16, 56, 56))))


def _if_kind(starts: tuple[str, ...], make: Maker) -> Maker:
    """Return a maker for classes whose names start so."""
    return lambda call: make(call) if call.kind.startswith(starts) else None


_SIDES = _rows(2)
_IMAGE = _per_sample("image_dim", "image_embed_dim", shape=lambda call: (call.sample.image_tokens,))
_MASKED = ("HunyuanVideo", "HunyuanImage", "LTX", "Mochi")
_MAKERS: dict[str, Maker] = {
    "hidden_states": _latents,
    "sample": _pixels,
    "x": _one_by_one,
    "z": _coded,
    "encoder_hidden_states": _prompt,
    "cap_feats": lambda call: [call.reals(call.sample.prompt, int(call.setting("cap_feat_dim", default=2560)))] * call.batch,
    "timestep": _timestep,
    "t": _rows(),
    "pooled_projections": _per_sample("pooled_projection_dim"),
    "guidance": lambda call: call.reals(call.batch) if call.setting("guidance_embeds") else None,
    "img_ids": _positions(lambda call: call.tokens),
    "txt_ids": _positions(lambda call: call.sample.prompt),
    "img_shapes": _image_shapes,
    "encoder_hidden_states_image": _IMAGE,
    "image_embeds": _IMAGE,
    "encoder_attention_mask": _if_kind(_MASKED, lambda call: call.whole(call.batch, call.sample.prompt)),
    "control_hidden_states": lambda call: call.reals(call.batch, int(call.setting("vace_in_channels", default=96)), *call.latent),
    "controlnet_cond": _control_condition,
    "added_cond_kwargs": _added,
    "class_labels": _class_labels,
    "global_hidden_states": lambda call: call.reals(call.batch, 1, int(call.setting("global_states_input_dim", default=1536))),
    "padding_mask": lambda call: call.reals(1, 1, *call.latent[1:]) if call.setting("concat_padding_mask") else None,
    "num_frames": _if_kind(("LTX",), lambda call: call.patched[0]),
    "height": _if_kind(("LTX",), lambda call: call.patched[1]),
    "width": _if_kind(("LTX",), lambda call: call.patched[2]),
    "original_size": _SIDES,
    "target_size": _SIDES,
    "crop_coords": _SIDES,
}
