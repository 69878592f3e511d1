"""What one step works on: samples, each with its streams of tokens, counted once and never as an object per token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ullage.errors import UllageError

Convention = Literal["causal", "full"]
Samples = Sequence[tuple["Sample", int]]  # each with its count
CAUSAL: Convention = "causal"
FULL: Convention = "full"


@dataclass(frozen=True)
class Sample:
    """One sequence, image, video or row of a step; 0, () or None where the model has no such stream.

    `text` counts new tokens (of the decoder, in an encoder-decoder); `context` those already in the cache before them;
    `logits` how many of the new ones reach the LM head (None: all). `encoder` are the tokens of an encoder. `grids` are
    the patch grids (frames, rows, columns) of a vision tower's images before merging, `pixels` the (height, width) of
    images for towers that patch for themselves, `image_tokens` image-conditioning tokens. `latent` is a diffusion
    model's grid (frames, rows, columns) before patching, `latent_tokens` the tokens after it where they are given
    instead; `reference_tokens` join the latent stream after patching (edit, inpaint, ControlNet). `prompt` are the
    tokens that condition generation. `audio` are an audio encoder's frames.
    """

    text: int = 0
    context: int = 0
    logits: int | None = None
    encoder: int = 0
    grids: tuple[tuple[int, int, int], ...] = ()
    pixels: tuple[tuple[int, int], ...] = ()
    image_tokens: int = 0
    latent: tuple[int, int, int] | None = None
    latent_tokens: int | None = None
    reference_tokens: int = 0
    prompt: int = 0
    audio: int = 0


@dataclass(frozen=True)
class Quantity:
    """How often a piece of work is done in a sample: tokens, query-key pairs, pixels. Two of one name are equal.

    `of(sample, convention)` is an exact integer; a step's value is the sum over its samples, unless `whole` gives it from all
    of them together (a contrastive loss compares every text with every image).
    """

    name: str
    of: Callable[[Sample, Convention], int] = field(compare=False, repr=False)
    whole: Callable[[Samples], int] | None = field(default=None, compare=False, repr=False)


def quantity(name: str, of: Callable[[Sample], int]) -> Quantity:
    """Return a quantity that no convention changes.

    >>> quantity("frames", lambda sample: sample.audio).of(Sample(audio=1500), "causal")
    1500
    """
    return Quantity(name, lambda sample, _: of(sample))


def every_pair(count: Quantity) -> Quantity:
    """Return the pairs of every sample with everything that is counted, over the whole step.

    Two samples with one image each make four pairs.

    >>> every_pair(ONCE).whole([(Sample(), 2)])
    4
    """

    def whole(samples: Samples) -> int:
        return sum(n for _, n in samples) * sum(n * count.of(sample, FULL) for sample, n in samples)

    return Quantity(f"samples × {count.name}", count.of, whole)


def required(option: str, value: int | None, what: str) -> int:
    """Return `value`, or raise the error for a shape that this model needs and nobody gave."""
    if not value:
        raise UllageError(f"this model works on {what}, and none are given", f"say how many: {option}")
    return value


ONCE = quantity("samples", lambda _: 1)
TEXT = quantity("text tokens", lambda s: s.text)
LOGITS = quantity("tokens with logits", lambda s: s.text if s.logits is None else s.logits)
PROMPT = quantity("prompt tokens", lambda s: s.prompt)
IMAGE_TOKENS = quantity("image tokens", lambda s: s.image_tokens)


def band(new: int, context: int, window: int | None) -> int:
    """Return how many (query, key) pairs causal attention needs: each new token sees itself and what came before it.

    With a window, at most the last `window` tokens, itself among them. s(s+1)/2 without context and window
    (equations of model FLOPs: the true count, not s²/2).

    Four tokens see 1, 2, 3, 4 keys; with a window of 2, 1, 2, 2, 2; after 10 cached tokens, 11 to 14.

    >>> band(4, 0, None), band(4, 0, 2), band(4, 10, None), band(4, 10, 3)
    (10, 7, 50, 12)
    """
    if window is None:
        return new * context + new * (new + 1) // 2
    short = max(0, min(new, window - context))  # tokens that do not see a full window yet
    return short * context + short * (short + 1) // 2 + (new - short) * window


def pairs(window: int | None = None) -> Quantity:
    """Return the query-key pairs of causal self-attention over the text; `full` counts all, windows ignored."""

    def of(sample: Sample, convention: Convention) -> int:
        if convention == FULL:
            return sample.text * (sample.context + sample.text)
        return band(sample.text, sample.context, window)

    return Quantity(f"causal pairs, window {window}" if window else "causal pairs", of)


def square(name: str, tokens: Callable[[Sample], int]) -> Quantity:
    """Return the pairs of self-attention in which all see all: the square of a sample's tokens."""
    return quantity(name, lambda s: tokens(s) ** 2)


CROSS_PAIRS = quantity("text-encoder pairs", lambda s: s.text * s.encoder)
