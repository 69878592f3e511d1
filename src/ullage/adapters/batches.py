"""How long the sequences of a batch are: from cumulative lengths, positions, masks or ids, as the trainers' batches hold them.

Tensors are asked only for what NumPy's arrays have too (`shape`, `sum`, `max`, `tolist`), so nothing here needs torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ullage.adapters.meter import Lengths
from ullage.errors import UllageError
from ullage.models.diffusion import field, members, shape
from ullage.models.model import Kind
from ullage.models.sample import Sample

CUMULATIVE = ("cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q", "cu_seq_lens")
IGNORED = -100  # the label of a token without a loss: in an encoder-decoder, of padding
POSITIONS_OF_TEXT = 4  # rows of position_ids with three of images, and those of the text before them


@dataclass(frozen=True)
class Batch:
    """The sequences of a batch, and as the hardware sees them where they were padded."""

    lengths: Lengths
    padded: Lengths | None = None


def read_batch(batch: Any, kind: Kind = "decoder") -> Batch:
    """Return the lengths in a batch for a model of this kind; raises UllageError where they can't be read from it.

    A list of lengths, or of Samples, is taken as it is.

    >>> read_batch({"attention_mask": [[1, 1, 1], [1, 0, 0]]}).lengths
    [3, 1]
    >>> read_batch({"position_ids": [[0, 1, 2, 0, 1]]}).lengths
    [3, 2]
    """
    if isinstance(batch, list | tuple) and all(isinstance(part, int | Sample) for part in batch):
        return Batch(batch)
    if kind in ("decoder", "encoder"):
        return _needed(_sequences(batch), "input_ids")
    if kind in ("encoder-decoder", "audio"):
        return _two_sides(batch)
    if kind in ("vision", "vision-language"):
        return _with_images(batch, kind)
    raise UllageError("the shapes of this model don't follow from a trainer's batch", "give Samples: a function `lengths` of the batch")


def _needed(found: Batch | None, name: str) -> Batch:
    if found is None:
        raise UllageError(f"a batch has no {name}, and nothing else that tells lengths", "give a function `lengths` of the batch")
    return found


def _sequences(batch: Any) -> Batch | None:
    ids = _first(batch, ("input_ids", "inputs_embeds"))
    if (sums := _first(batch, CUMULATIVE)) is not None:
        return Batch([end - start for start, end in pairwise(sums.tolist() if hasattr(sums, "tolist") else sums)])
    if getattr(ids, "is_nested", False):
        return Batch([sides[0] for sides in members(ids)])
    mask = _array(field(batch, "attention_mask"), 2)
    if mask is not None and int(mask.sum()) != math.prod(mask.shape):
        return Batch(_kept(mask), [int(mask.shape[1])] * int(mask.shape[0]))
    if (packed := _packed(field(batch, "position_ids"))) is not None:
        return Batch(packed)
    sides = shape(mask if ids is None else ids)
    return Batch([sides[1]] * sides[0]) if sides and len(sides) > 1 else None


def _first(batch: Any, names: Iterable[str]) -> Any:
    return next((value for name in names if (value := field(batch, name)) is not None), None)


def _array(value: Any, sides: int) -> Any | None:
    """Return what can be summed, if it has this many sides; lists become arrays."""
    value = np.asarray(value) if isinstance(value, list | tuple) else value
    return value if value is not None and len(value.shape) == sides else None


def _kept(mask: Any) -> list[int]:
    """Return the tokens that a mask keeps, a row each; a mask that numbers packed sequences (1, 1, 2, 2, 2, 0) has several in a row."""
    if int(mask.max()) <= 1:
        kept: list[int] = mask.sum(-1).tolist()
        return kept
    return [count for row in mask.tolist() for number, count in sorted(Counter(row).items()) if number > 0]


def _packed(positions: Any) -> list[int] | None:
    """Return the lengths of sequences that stand in one row, each from position 0 on; None where each row is one sequence."""
    if positions is not None and len(shape(positions) or ()) == 3 and positions.shape[0] == POSITIONS_OF_TEXT:
        positions = positions[0]
    positions = _array(positions, 2)
    if positions is None or int((positions == 0).sum()) <= positions.shape[0]:
        return None
    found = []
    for row in positions.tolist():
        starts = [0, *(place for place, position in enumerate(row) if position == 0 and place), len(row)]
        found += [end - start for start, end in pairwise(starts)]
    return found


def _two_sides(batch: Any) -> Batch:
    """Return Samples of an encoder-decoder, or of a model that hears: text beside tokens or frames."""
    frames = shape(field(batch, "input_features"))
    tokens = _sequences(batch)
    text = _decoder(batch)
    if text is None and frames:
        text, tokens = tokens, None
    text = _needed(text, "labels")
    heard = [frames[-1]] * frames[0] if frames else [0] * len(text.lengths)

    def paired(texts: Any, encoder: Any) -> list[Sample]:
        encoder = [0] * len(texts) if encoder is None else encoder
        if not len(texts) == len(encoder) == len(heard):
            raise UllageError(f"a batch has {len(texts)} texts for {max(len(encoder), len(heard))} inputs", "give one for each")
        return [Sample(text=t, encoder=e, audio=a) for t, e, a in zip(texts, encoder, heard, strict=True)]

    if text.padded is None and (tokens is None or tokens.padded is None):
        return Batch(paired(text.lengths, tokens and tokens.lengths))
    seen = tokens and (tokens.padded or tokens.lengths)
    return Batch(paired(text.lengths, tokens and tokens.lengths), paired(text.padded or text.lengths, seen))


def _decoder(batch: Any) -> Batch | None:
    mask = _array(field(batch, "decoder_attention_mask"), 2)
    labels = _array(field(batch, "labels"), 2)
    if mask is None and labels is not None:
        mask = labels != IGNORED
    if mask is not None:
        rows, columns = map(int, mask.shape)
        return Batch(mask.sum(-1).tolist(), [columns] * rows)
    sides = shape(field(batch, "decoder_input_ids"))
    return Batch([sides[1]] * sides[0]) if sides else None


def _with_images(batch: Any, kind: Kind) -> Batch:
    """Return Samples with images: patch grids where they are told, else pixels; those of each text, if there are as many."""
    pixels = shape(field(batch, "pixel_values")) or ()
    grids = tuple(tuple(row) for name in ("image_grid_thw", "video_grid_thw") for row in _rows(field(batch, name)))
    count, size = (math.prod(pixels[1:-3]), pixels[-2:]) if len(pixels) >= 4 else (0, ())
    if kind == "vision":
        if not count:
            raise UllageError("a batch has no pixel_values of (samples, channels, rows, columns)", "give a function `lengths` of the batch")
        return Batch([Sample(pixels=(size,) * count)] * pixels[0])  # type: ignore[arg-type]
    text = _needed(_sequences(batch), "input_ids")

    def beside(lengths: Any) -> list[Sample]:
        each = [Sample(text=length) for length in lengths]
        if not grids and count and pixels[0] == len(each):
            return [replace(sample, pixels=(size,) * count) for sample in each]  # type: ignore[arg-type]
        images = () if grids or not count else (size,) * count * pixels[0]
        # a tower's work depends on its images alone, so one sample may hold those of all
        return [replace(each[0], grids=grids, pixels=images), *each[1:]] if each else []  # type: ignore[arg-type]

    return Batch(beside(text.lengths), None if text.padded is None else beside(text.padded))


def _rows(value: Any) -> list[list[int]]:
    return [] if value is None else value.tolist() if hasattr(value, "tolist") else list(value)
