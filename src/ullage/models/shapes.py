"""From the words of a command to a step: batch and lengths, images, latents, timesteps, and what is taken when nothing is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.formula import Formula
from ullage.models.sample import Convention, Sample
from ullage.models.step import Step, together

MOST = 1 << 40
_LONGEST_DEFAULT = 4096  # tokens, where nobody says how long sequences are
_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length", "max_target_positions")


@dataclass(frozen=True)
class Shapes:
    """What describes a step, with the same words as the command's options; None is not given.

    `batch` counts samples of the whole step over all GPUs, before `accumulation`. `seqlens` are the lengths of packed
    sequences, instead of batch and seq. `image` are (height, width) in pixels, `grid` (frames, rows, columns) of patches,
    each image of every sample; `latent` is (rows, columns) or (frames, rows, columns) before patching, and `latent_tokens`,
    `prompt_tokens` one number or one a sample. `padded_seq` is the length to which sequences are padded.
    """

    batch: int | None = None
    seq: int | None = None
    seqlens: Sequence[int] | None = None
    encoder_seq: int | None = None
    decoder_seq: int | None = None
    context: int | None = None
    logits: str = "all"
    image: Sequence[tuple[int, int]] = ()
    image_tokens: int | None = None
    grid: Sequence[tuple[int, int, int]] = ()
    latent: Sequence[int] | None = None
    latent_tokens: int | Sequence[int] | None = None
    reference_tokens: int = 0
    prompt_tokens: int | Sequence[int] | None = None
    audio_frames: int | None = None
    timesteps: int = 1
    forward_passes: int = 1
    accumulation: int = 1
    padded_seq: int | None = None
    sp: int = 1

    def __post_init__(self) -> None:
        for f in fields(self):
            _refuse_sizes(f"--{f.name.replace('_', '-')}", getattr(self, f.name), least=0 if f.name in _MAY_BE_ZERO else 1)
        if self.logits not in ("all", "last"):
            raise UllageError(f"--logits {self.logits} is not known", "say all or last")
        if self.latent is not None and len(self.latent) not in (2, 3):
            raise UllageError("--latent takes H,W or T,H,W", "for example --latent 64,64 or --latent 21,60,104")
        for option, name, sizes in (("--image", "H,W", 2), ("--grid", "T,H,W", 3)):
            for each in getattr(self, option[2:]):
                if not isinstance(each, list | tuple) or len(each) != sizes:
                    raise UllageError(f"{option} takes {name}, each a list of its own", f"for example {option[2:]}=[({name})]")

    @property
    def decodes(self) -> bool:
        """Whether tokens are added to a cache: a step of generation."""
        return bool(self.context)


_MAY_BE_ZERO = ("context", "reference_tokens", "prompt_tokens")


def _refuse_sizes(option: str, value: Any, least: int) -> None:
    if isinstance(value, list | tuple):
        for part in value:
            _refuse_sizes(option, part, least)
    elif value is not None and not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int):
            raise UllageError(f"{option} {value!r} is not a whole number", f"give a whole number from {least} on")
        if not least <= value <= MOST:
            raise UllageError(f"{option} {value:,} can't be", f"give a whole number from {least} on")


def forward_passes(config: Config, passes: int | None, scale: float | None) -> int:
    """Return how often the network runs a timestep: as said, or 2 for a guidance scale above 1 on a model that is not distilled.

    >>> forward_passes(Config({}), None, 7.5), forward_passes(Config({"guidance_embeds": True}), None, 3.5)
    (2, 1)
    """
    if passes is not None:
        return passes
    return 2 if scale is not None and scale > 1 and config.values.get("guidance_embeds") is not True else 1


def step(shapes: Shapes, formula: Formula, attention: Convention) -> tuple[Step, list[str]]:
    """Return the step, and a note for each shape that was taken because nobody gave it."""
    notes: list[str] = []
    config = formula.config
    samples = _samples(shapes, formula, notes)
    repeats = shapes.timesteps * shapes.forward_passes if formula.model.kind == "diffusion" else 1
    counted = tuple((sample, count * shapes.accumulation) for sample, count in samples)
    padded = _padded(counted, shapes)
    if shapes.padded_seq and padded is None:
        notes.append("--padded-seq adds nothing: every sequence has that length")
    if formula.model.kind != "diffusion" and shapes.timesteps * shapes.forward_passes > 1:
        raise UllageError(
            f"{config.architecture} is no diffusion model, and has no timesteps", "leave --timesteps and --forward-passes out"
        )
    return Step(counted, attention, repeats, padded), notes


def _samples(shapes: Shapes, formula: Formula, notes: list[str]) -> tuple[tuple[Sample, int], ...]:
    model, config = formula.model, formula.config
    base = Sample(
        grids=tuple(shapes.grid),
        pixels=tuple(shapes.image),
        image_tokens=shapes.image_tokens or 0,
        latent=None if shapes.latent is None else _three(shapes.latent),
        reference_tokens=shapes.reference_tokens,
        audio=shapes.audio_frames or 0,
        context=shapes.context or 0,
        logits=1 if shapes.logits == "last" else None,
    )
    _refuse_unread(shapes, formula)
    if model.kind == "diffusion":
        return _diffusion(shapes, base, config, notes)
    if not (base.grids or base.pixels or base.image_tokens) and model.kind in ("vision", "vision-language"):
        base = _default_image(base, config, notes)
    if shapes.seqlens is not None:
        if shapes.batch or shapes.seq:
            raise UllageError("--seqlens stands beside --batch or --seq", "packed lengths say both: give one or the other")
        return together(replace(base, text=s, encoder=s) for s in shapes.seqlens)
    return ((_texts(shapes, base, formula, notes), shapes.batch or 1),)


# What a kind of model has no use for: a step with it is not the step that was meant
_PICTURES, _LATENTS = ("image", "image_tokens", "grid"), ("latent", "latent_tokens", "reference_tokens", "prompt_tokens")
_UNREAD: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("decoder", "encoder", "encoder-decoder", "recommendation"), (*_PICTURES, *_LATENTS)),
    "vision-language": _LATENTS,
    "diffusion": ("seq", "seqlens", "encoder_seq", "decoder_seq", "context", "padded_seq", "audio_frames"),
}


def _refuse_unread(shapes: Shapes, formula: Formula) -> None:
    """Raise for a shape that this kind of model does not read: --image for a model of text."""
    reads = formula.model.shapes
    for word in _UNREAD.get(formula.model.kind, ()):
        option = word.replace("_", "-")
        if getattr(shapes, word) and option not in reads:
            known = " and ".join(f"--{name}" for name in reads) or "--batch"
            raise UllageError(f"{formula.name} does not read --{option}", f"it is a {formula.model.kind} model, described by {known}")


def _three(latent: Sequence[int]) -> tuple[int, int, int]:
    return (1, *latent) if len(latent) == 2 else tuple(latent)  # type: ignore[return-value]


def _texts(shapes: Shapes, base: Sample, formula: Formula, notes: list[str]) -> Sample:
    if formula.model.kind in ("vision", "recommendation") and not (shapes.seq or shapes.decoder_seq):
        return base
    text = shapes.decoder_seq or shapes.seq or (1 if shapes.decodes else None) or _default_length(formula.config, notes)
    encoder = shapes.encoder_seq or shapes.seq or text
    return replace(base, text=text, encoder=encoder)


def _default_length(config: Config, notes: list[str]) -> int:
    for section in (config, *(config.section(s) for s in ("text_config", "llm_config") if config.has(s))):
        if section.has(*_LENGTH_FIELDS):
            longest = section.integer(*_LENGTH_FIELDS)
            break
    else:
        longest = _LONGEST_DEFAULT
    taken = min(longest, _LONGEST_DEFAULT)
    notes.append(f"no --seq was given: sequences of {taken:,} tokens are assumed")
    return taken


def _default_image(base: Sample, config: Config, notes: list[str]) -> Sample:
    for section in (config, *(config.section(s) for s in ("vision_config",) if config.has(s))):
        size = section.values.get("image_size")
        pair = [size, size] if isinstance(size, int) and not isinstance(size, bool) else size
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(s, int) and 0 < s < MOST for s in pair):
            notes.append(f"no --image was given: one of {pair[0]} × {pair[1]} pixels a sample is assumed")
            return replace(base, pixels=((pair[0], pair[1]),))
    if config.has("vision_config"):
        notes.append("no --image or --grid was given: text alone is counted, without the vision tower")
    return base


_EDITING = ("ImageEdit", "Kontext")  # pipelines whose references stand beside the latents as tokens of their own


def _diffusion(shapes: Shapes, base: Sample, config: Config, notes: list[str]) -> tuple[tuple[Sample, int], ...]:
    if base.latent is None and shapes.latent_tokens is None:
        size = config.values.get("sample_size")
        pair = [size, size] if isinstance(size, int) and not isinstance(size, bool) else size
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(s, int) and 0 < s < MOST for s in pair):
            notes.append(f"no --latent was given: sample_size, {pair[0]} × {pair[1]}, is assumed")
            base = replace(base, latent=(1, pair[0], pair[1]))
    if not base.reference_tokens and any(word in config.architecture for word in _EDITING):
        notes.append("no --reference-tokens were given: the images that are edited or followed are not counted")
    latents, prompts = _each(shapes.latent_tokens), _each(shapes.prompt_tokens)
    counts = {len(x) for x in (latents, prompts) if len(x) > 1}
    if len(counts) > 1:
        raise UllageError(
            f"--latent-tokens are for {len(latents)} samples, --prompt-tokens for {len(prompts)}", "give one number, or as many of both"
        )
    if counts and shapes.batch not in (None, counts.copy().pop()):
        raise UllageError(f"tokens are given for {counts.pop()} samples, and --batch is {shapes.batch}", "leave --batch out")
    count = counts.pop() if counts else (shapes.batch or 1)
    latents, prompts = (x * count if len(x) == 1 else x for x in (latents, prompts))
    return _counted(base, latents, prompts, count)


def _counted(base: Sample, latents: list[int], prompts: list[int], count: int) -> tuple[tuple[Sample, int], ...]:
    def sample(i: int) -> Sample:
        return replace(base, latent_tokens=latents[i] if latents else None, prompt=prompts[i] if prompts else 0)

    if len(set(latents)) <= 1 and len(set(prompts)) <= 1:
        return ((sample(0), count),)
    return together(sample(i) for i in range(count))


def _each(given: int | Sequence[int] | None) -> list[int]:
    if given is None:
        return []
    return [given] if isinstance(given, int) else list(given)


def _padded(samples: tuple[tuple[Sample, int], ...], shapes: Shapes) -> tuple[tuple[Sample, int], ...] | None:
    """Return the samples as long as they are run: sequences up to `padded_seq`, prompts up to a multiple of the sequence-parallel size."""
    longest = shapes.padded_seq

    def long(tokens: int) -> int:
        if longest is None or not tokens:
            return tokens
        if tokens > longest:
            raise UllageError(f"a sequence of {tokens:,} tokens can't be padded to {longest:,}", "give a longer --padded-seq")
        return longest

    def pad(sample: Sample) -> Sample:
        prompt = -(-sample.prompt // shapes.sp) * shapes.sp
        return replace(sample, text=long(sample.text), encoder=long(sample.encoder), prompt=prompt)

    grown = tuple((pad(sample), count) for sample, count in samples)
    return None if grown == samples else grown
