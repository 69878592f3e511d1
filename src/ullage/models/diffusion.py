"""The way of VeRL-Omni to count a diffusion model, under its names: a class per pipeline, lengths of latents and prompts, TFLOP/s.

Every diffusion family of Ullage is known to the counter by its exact formula, under the names of its pipelines; a class of
one's own is added with `register_diffusion_architecture` and stands above them. Training counts three times the forward pass.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import mul
from typing import Any, TypeVar

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.formula import Formula, compiled
from ullage.models.model import MODELS, unknown
from ullage.models.passes import Training
from ullage.models.sample import FULL, Sample

Peak = float | Callable[[], float]  # TFLOP/s of a device, or where to ask for it
FLOWS = ("image_latents", "audio_latents", "all_latents", "latents_clean")  # where trainers put latents, asked in this order
STACKED = "all_latents"  # with one axis more, the timesteps of a rollout
REFERENCES = ("reference_image_latents", "reference_latents")
ROLLOUT = "WithLogProb"  # the end of the names of rollout pipelines, else named like those of diffusers
JOINING = ("Edit", "Kontext", "Layered", "Flux2")  # pipelines that put reference latents beside the denoised ones in one sequence
WAN_PROMPT = 512  # tokens to which Wan pads its prompt; in its prompt stream the conditioning image's tokens come on top

ArchitectureT = TypeVar("ArchitectureT", bound="type[DiffusionModelFlops]")


class DiffusionModelFlops:
    """The FLOPs of one architecture, by lengths of latents and prompts a sample; subclasses have `estimate_flops`.

    `config` are the fields of the transformer's config.json.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.config: Mapping[str, Any] = config or {}

    @property
    def dim(self) -> int:
        """The width of the streams: heads × width of a head."""
        config = Config(self.config)
        return config.integer("num_attention_heads") * config.integer("attention_head_dim")

    def compute_dense_flops(self, params_per_token: int, total_tokens: int) -> int:
        """Return the training FLOPs of weights by which each token is multiplied once.

        >>> DiffusionModelFlops().compute_dense_flops(params_per_token=10, total_tokens=7)
        420
        """
        return 6 * params_per_token * total_tokens

    def compute_attention_flops(self, latent_seqlens: Sequence[int], prompt_seqlens: Sequence[int], *, causal: bool = False) -> int:
        """Return the training FLOPs of attention over latents and prompt in one sequence, in all `num_layers`; causal ones count half."""
        latents, prompts = paired(latent_seqlens, prompt_seqlens)
        pairs = sum((i + p) ** 2 for i, p in zip(latents, prompts, strict=True))
        return (6 if causal else 12) * Config(self.config).integer("num_layers") * self.dim * pairs

    def get_latent_seqlens(self, data: Any = None, config: Mapping[str, Any] | None = None) -> list[int]:
        """Return the latent tokens of each sample: the product of the latents' sides, without patching.

        Latents are (batch, channels, *sides), those of a rollout ("all_latents") (batch, timesteps, channels, *sides); packed
        ones have tokens in place of channels, and the transformer's `in_channels` at the end.
        """
        channels = field(config or self.config, "in_channels")
        return [math.prod(sides) for sides in latent_sides(data, {channels} if channels else set())]

    def get_prompt_seqlens(self, data: Any = None, config: Mapping[str, Any] | None = None) -> list[int]:
        """Return the prompt tokens of each sample: the mask's, else the embeddings' length, else 0."""
        del config  # an architecture that pads its prompts may ask it
        return prompt_lengths(data)

    @abstractmethod  # and yet no ABC: what reads lengths from data serves by itself
    def estimate_flops(
        self,
        latent_seqlens: Sequence[int],
        prompt_seqlens: Sequence[int],
        delta_time: float,
        *,
        num_timesteps: int,
        num_forward_passes: int,
    ) -> float:
        """Return the TFLOP/s of a step that took `delta_time` seconds; every architecture says it for itself."""
        raise UllageError(f"{type(self).__name__} does not say what a step costs", "give it the method estimate_flops")


class FamilyFlops(DiffusionModelFlops):
    """An architecture that Ullage has a formula for: exact FLOPs, latents patched as the config says.

    A subclass sets `architecture` and overrides what differs, such as where its latents lie.
    """

    architecture = ""

    def __init__(self, config: Mapping[str, Any] | None = None, architecture: str = "") -> None:
        super().__init__(config)
        self.architecture = architecture or self.architecture
        read = Config(self.config, f"the configuration of {self.architecture}")
        if not read.has("image_dim"):  # without it a transformer has no image embedder, and its added projections no input
            read = read.replaced(added_kv_proj_dim=None)
        self.formula: Formula = compiled(read, self.architecture.removesuffix(ROLLOUT))
        of = self.formula.per_sample(Training(), FULL)
        self._of = lru_cache(maxsize=4096)(lambda latents, prompt: of(self._sample(latents, prompt)))
        self._sum = by_moments(self._of)

    def flops(self, latent_seqlens: Sequence[int], prompt_seqlens: Sequence[int]) -> int:
        """Return the exact training FLOPs (three times forward) of one forward pass at one timestep over all samples."""
        latents, prompts = paired(latent_seqlens, prompt_seqlens)
        if not latents:
            raise UllageError("there are no latents to count", f"give latent_seqlens, or data with one of {', '.join(FLOWS)}")
        return self._sum(latents, prompts)

    def estimate_flops(
        self,
        latent_seqlens: Sequence[int],
        prompt_seqlens: Sequence[int],
        delta_time: float,
        *,
        num_timesteps: int,
        num_forward_passes: int,
    ) -> float:
        """Return the TFLOP/s of a step that took `delta_time` seconds, over timesteps and guidance passes."""
        if not delta_time > 0:
            raise UllageError(f"a step can't take {delta_time!r} s", "give the seconds it took")
        if num_timesteps < 1 or num_forward_passes < 1:
            raise UllageError(f"{num_timesteps} timesteps × {num_forward_passes} forward passes are not a step", "give 1 or more of each")
        return self.flops(latent_seqlens, prompt_seqlens) * num_timesteps * num_forward_passes / delta_time / 1e12

    def get_latent_seqlens(self, data: Any = None, config: Mapping[str, Any] | None = None) -> list[int]:
        """Return the latent tokens of each sample after patching; reference latents among them where the pipeline joins them.

        Latents are grids, which are patched as the config says, or tokens that the pipeline has packed, which are counted.
        """
        packed = self._packed(config or self.config)
        own = [self._tokens(sides) for sides in latent_sides(data, packed)]
        if not any(word in self.architecture for word in JOINING):
            return own
        added = [self._tokens(sides) for sides in reference_sides(data, packed)]
        if len(added) not in (0, 1, len(own)):
            raise UllageError(f"there are reference latents of {len(added)} samples for {len(own)}", "give one for each")
        return [n + (added[i % len(added)] if added else 0) for i, n in enumerate(own)]

    def _packed(self, config: Mapping[str, Any]) -> set[int]:
        """Return the channels by which packed latents are known: those that go in (a control's among them), those that come out."""
        ways = {w.name: w.shape for w in self.formula.works if w.shape}
        inner, columns = ways.get("latent.in", (0, 0))[0], ways.get("output.proj", (0, 0))[1]
        return {n for n in (config.get("in_channels"), inner, columns) if n}

    def _tokens(self, sides: tuple[int, ...]) -> int:
        """Return the tokens of one sample's latents: those that are packed, or the patches of (frames,) rows and columns."""
        embedder = next((w for w in self.formula.works if w.group == "latent"), None)
        if len(sides) == 1 or embedder is None:
            return math.prod(sides)
        return embedder.quantity.of(Sample(latent=(1, 1, 1, *sides)[-3:], prompt=1), FULL)  # type: ignore[arg-type]

    def _sample(self, latents: int, prompt: int) -> Sample:
        image = 0
        if self.formula.model.family.startswith("wan") and self.formula.config.has("image_dim"):
            image, prompt = max(0, prompt - WAN_PROMPT), min(prompt, WAN_PROMPT)
        return Sample(latent_tokens=latents, prompt=prompt, image_tokens=image)


class QwenImageFlops(FamilyFlops):
    """Qwen-Image, for those who derive from it."""

    architecture = "QwenImagePipeline"


_ADDED: dict[str, type[DiffusionModelFlops]] = {}


def register_diffusion_architecture(*names: str) -> Callable[[ArchitectureT], ArchitectureT]:
    """Register a class for the names of pipelines; it stands above a family of that name, and above a class registered before it.

    Raises TypeError for what is no DiffusionModelFlops.
    """

    def register(architecture: ArchitectureT) -> ArchitectureT:
        if not (isinstance(architecture, type) and issubclass(architecture, DiffusionModelFlops)):
            raise TypeError(f"register_diffusion_architecture takes subclasses of DiffusionModelFlops, not {architecture!r}")
        _ADDED.update(dict.fromkeys(names, architecture))
        return architecture

    return register


def diffusion_architectures() -> list[str]:
    """Return the names that the counter knows: of the diffusion families, and of classes that were registered."""
    return sorted({name for name, model in MODELS.items() if model.kind == "diffusion"} | set(_ADDED))


class DiffusionFlopsCounter:
    """The FLOPs of a diffusion trainer's steps: lengths from its data, then estimated and promised TFLOP/s.

    `architecture` is the pipeline's name in model_index.json, or the transformer's; `transformer_config` the fields of
    transformer/config.json. `peak` is the device's, in TFLOP/s, or a function that returns it. Raises UllageError for an
    architecture that nobody registered.
    """

    def __init__(self, architecture: str | None, transformer_config: Mapping[str, Any] | None, peak: Peak | None = None) -> None:
        self.config: Mapping[str, Any] = transformer_config or {}
        self.architecture = architecture or str(self.config.get("_class_name") or "")
        self.peak = peak
        self._of = self._chosen()

    @property
    def architecture_cls(self) -> type[DiffusionModelFlops]:
        """The class that counts."""
        return type(self._of)

    def collect_meta(self, data: Any) -> dict[str, list[int]]:
        """Return the lengths of latents and prompts of each sample of a batch: what is gathered over the data-parallel ranks."""
        return {"latent_seqlens": list(self._of.get_latent_seqlens(data)), "prompt_seqlens": list(self._of.get_prompt_seqlens(data))}

    def estimate_flops(
        self,
        latent_seqlens: Sequence[int],
        prompt_seqlens: Sequence[int],
        delta_time: float,
        *,
        num_timesteps: int = 1,
        num_forward_passes: int = 1,
    ) -> tuple[float, float | None]:
        """Return (TFLOP/s of the step, TFLOP/s that a device promises); the second is None where no peak was given."""
        estimated = self._of.estimate_flops(
            latent_seqlens, prompt_seqlens, delta_time, num_timesteps=num_timesteps, num_forward_passes=num_forward_passes
        )
        return float(estimated), self.promised()

    def promised(self) -> float | None:
        """Return the TFLOP/s that a device promises, if somebody said."""
        promised = self.peak() if callable(self.peak) else self.peak
        return None if promised is None else float(promised)

    def _chosen(self) -> DiffusionModelFlops:
        name = self.architecture
        for known in (name, name.removesuffix(ROLLOUT)):
            if known in _ADDED:
                return _ADDED[known](self.config)
            if known in MODELS and MODELS[known].kind == "diffusion":
                return FamilyFlops(self.config, known)
        raise unknown(name, Config({}, "the pipeline"))


def collect_diffusion_flops_meta(counter: DiffusionFlopsCounter, data: Any, *, pipeline_config: Any = None) -> dict[str, Any]:
    """Return what a step is estimated by: the lengths, the timesteps of a rollout (else 1), the forward passes a timestep."""
    times = next((s for s in (shape(field(data, name)) for name in ("all_timesteps", "train_timesteps")) if s and len(s) > 1), (0, 1))
    passes = get_forward_passes_per_step(pipeline_config, counter.config)
    return {**counter.collect_meta(data), "num_timesteps": times[1], "num_forward_passes": passes}


def get_forward_passes_per_step(pipeline_config: Any = None, transformer_config: Any = None) -> int:
    """Return how often the transformer runs at a timestep: 2 with classifier-free guidance, else 1.

    An explicit `num_forward_passes` decides; then a guidance embedding (distilled: 1); then `true_cfg_scale` or
    `guidance_scale` above 1.

    >>> get_forward_passes_per_step({"guidance_scale": 4.5})
    2
    >>> get_forward_passes_per_step({"guidance_scale": 4.5}, {"guidance_embeds": True})
    1
    """
    explicit = field(pipeline_config, "num_forward_passes")
    if _number(explicit):
        return max(int(explicit), 1)
    if field(transformer_config, "guidance_embeds"):
        return 1
    scales = (field(pipeline_config, name) for name in ("true_cfg_scale", "guidance_scale"))
    return 2 if any(_number(scale) and scale > 1 for scale in scales) else 1


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def paired(latents: Sequence[int], prompts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the lengths of both streams, a sample each; no prompts are prompts of no tokens.

    >>> paired([4096, 1024], [])
    ([4096, 1024], [0, 0])
    """
    both = list(map(int, latents)), list(map(int, prompts)) or [0] * len(latents)
    if len(both[0]) != len(both[1]):
        raise UllageError(f"there are latents of {len(both[0])} samples, and prompts of {len(both[1])}", "give both for each sample")
    if both[0] and min(map(min, both)) < 0:
        raise UllageError("a sample can't have less than 0 tokens", "give lengths from 0 on")
    return both


def field(data: Any, name: str) -> Any:
    """Return a field of a mapping, of a batch with `get`, or of an object; None when it is missing."""
    if data is None:
        return None
    return data.get(name) if hasattr(data, "get") else getattr(data, name, None)


def shape(value: Any) -> tuple[int, ...] | None:
    """Return the sides of a tensor, or of equal lists in lists; None of nothing.

    >>> shape([[0, 0, 0], [0, 0, 0]])
    (2, 3)
    """
    if value is None:
        return None
    if hasattr(value, "shape"):
        return tuple(int(n) for n in value.shape)
    if isinstance(value, list | tuple):
        return (len(value), *((shape(value[0]) or ()) if value else ()))
    return ()


def members(value: Any) -> list[tuple[int, ...]]:
    """Return the shape of each sample of a batch: of a tensor, of a nested one, of a list of them."""
    if getattr(value, "is_nested", False):
        return [shape(part) or () for part in value.unbind()]
    if isinstance(value, list | tuple):
        return [shape(part) or () for part in value]
    sides = shape(value)
    return [sides[1:]] * sides[0] if sides else []


def latent_sides(data: Any, packed: set[int]) -> list[tuple[int, ...]]:
    """Return the sides of each sample's latents without channels and timesteps: (tokens,) where they are packed.

    `packed` are the channels that a packed token may have.
    """
    for name in FLOWS:
        if (value := field(data, name)) is not None:
            return [_sides(sample, packed, name == STACKED, name) for sample in members(value)]
    return []


def reference_sides(data: Any, packed: set[int]) -> list[tuple[int, ...]]:
    """Return the sides of each sample's reference latents; one that stands without a batch is every sample's."""
    for name in REFERENCES:
        if (value := field(data, name)) is not None:
            whole = shape(value) or ()
            samples = [whole] if len(whole) == 2 else members(value)
            return [_sides(sample, packed, False, name) for sample in samples]
    return []


def _sides(sample: tuple[int, ...], packed: set[int], stacked: bool, name: str) -> tuple[int, ...]:
    """Return the sides of one sample, whose shape is ([timesteps,] channels, *sides) or ([timesteps,] tokens, channels)."""
    # (channels, rows, columns) may end like packed tokens: its channels tell, whole or a quarter where 2×2 are packed
    grid = len(sample) == 3 and not stacked and not packed.isdisjoint((sample[0], 4 * sample[0]))
    if len(sample) in (2, 3) and sample[-1] in packed and not grid:
        return sample[-2:-1]
    rest = sample[2:] if stacked else sample[1:]
    if not rest or (packed and len(sample) == 2 and sample[0] not in packed):
        raise UllageError(f"{name} has samples of shape {sample}, which are not latents of this model", "give (channels, *sides)")
    return rest


def prompt_lengths(data: Any) -> list[int]:
    """Return the prompt tokens of each sample: what the mask keeps, else how long the embeddings are; 0 without both."""
    mask, embeddings = field(data, "prompt_embeds_mask"), field(data, "prompt_embeds")
    if getattr(mask, "is_nested", False):
        return [(shape(part) or (0,))[0] for part in mask.unbind()]
    rows = mask.tolist() if hasattr(mask, "tolist") else mask
    if isinstance(rows, list | tuple):
        return [sum(bool(kept) for kept in (row.tolist() if hasattr(row, "tolist") else row)) for row in rows]
    if embeddings is not None:
        return [(sample or (0,))[0] for sample in members(embeddings)]
    latents = next((value for name in FLOWS if (value := field(data, name)) is not None), None)
    return [0] * len(members(latents))


# Lengths at which a polynomial is tried: near, on both sides of a usual prompt, past every usual window, and beyond any
_TRIED = ((4, 7), (9, 4), (129, 512), (130, 513), (4097, 131_073), (131_073, 77), (1 << 34, 1 << 33))


def by_moments(flops: Callable[[int, int], int]) -> Callable[[list[int], list[int]], int]:
    """Return the sum of `flops` over samples: by ΣI, ΣP, ΣI², ΣIP and ΣP² where it is a polynomial of degree 2, else one by one.

    >>> by_moments(lambda i, p: 5 + 2 * i + (i + p) ** 2)([10, 20], [1, 2])
    675
    """

    def one_by_one(latents: list[int], prompts: list[int]) -> int:
        return sum(map(flops, latents, prompts))

    def moments(latents: list[int], prompts: list[int]) -> int:
        if 0 in latents or 0 in prompts:  # where a stream is missing, a model may do other work
            return one_by_one(latents, prompts)
        linear = constant * len(latents) + line_i * sum(latents) + line_p * sum(prompts)
        squares = square_i * sum(map(mul, latents, latents)) + square_p * sum(map(mul, prompts, prompts))
        return int(linear + squares + 2 * cross * sum(map(mul, latents, prompts))) // 2

    try:
        origin, right, up = flops(1, 1), flops(2, 1), flops(1, 2)
        cross = flops(2, 2) - right - up + origin
        square_i, square_p = flops(3, 1) - 2 * right + origin, flops(1, 3) - 2 * up + origin  # twice, as the coefficients below
        line_i, line_p = 2 * (right - origin - cross) - 3 * square_i, 2 * (up - origin - cross) - 3 * square_p
        constant = 2 * (origin - cross) - line_i - line_p - square_i - square_p
        fits = all(flops(i, p) == moments([i], [p]) for i, p in _TRIED)
    except UllageError:  # a model whose latents come in certain numbers only
        return one_by_one
    return moments if fits else one_by_one
