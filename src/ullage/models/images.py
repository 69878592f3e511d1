"""Images as a vision tower sees them: patches, the tokens that it adds to each image, what is left after merging; and its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ullage.errors import UllageError
from ullage.models.blocks import Parts, mlp, self_attention
from ullage.models.config import Config
from ullage.models.sample import Quantity, Sample, quantity, required
from ullage.models.work import Work, convolution

Grid = tuple[int, int, int]  # frames, rows, columns
Fit = Literal["cut", "filled", "nearest"]
SEPARATE = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")
FUSED = ("attn.qkv", "attn.proj")


@dataclass(frozen=True)
class Images:
    """The images of a sample, cut into patches of `rows` × `columns` pixels; grids of patches are taken as they are.

    `extra` are the tokens that the tower adds to each image (class, registers); `merge` × `merge` patches become one token
    behind the tower. `fit` says what becomes of pixels that fill no patch: cut off (a convolution), filled up, or the image
    resized to the nearest whole number of merged patches. A tower with a `size` takes images of that size alone; one that
    is `needed` can't do without images, and takes a number of tokens (one image's, with the extra) instead.

    >>> Images(14, 14, extra=1).of(Sample(pixels=((224, 224),))).tokens
    257
    """

    rows: int
    columns: int
    extra: int = 0
    merge: int = 1
    fit: Fit = "cut"
    size: tuple[int, int] | None = field(default=None, compare=False)
    needed: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        """What tells two towers' images apart."""
        parts = [f"{self.rows}x{self.columns} pixels", self.fit]
        parts += [f"{self.extra} extra"] if self.extra else []
        return ", ".join(parts + ([f"merged {self.merge}x{self.merge}"] if self.merge > 1 else []))

    def of(self, sample: Sample) -> Patches:
        """Return the patches of a sample's images; raises UllageError for an image that this tower can't take."""
        if sample.grids:
            return self._checked(sample.grids)
        if sample.pixels:
            return self._checked(tuple(self._grid(size) for size in sample.pixels))
        if self.needed:
            tokens = required("--image", sample.image_tokens, "images")
            return self._checked(((1, 1, tokens - self.extra),))
        if sample.image_tokens:
            raise UllageError("the patches of an image don't follow from its tokens in the text", "say --image H,W or --grid T,H,W")
        return Patches((), self.extra, self.merge)

    def _grid(self, size: tuple[int, int]) -> Grid:
        if self.size is not None and size != self.size:
            raise UllageError(
                f"this model sees images of {self.size[0]} × {self.size[1]} pixels, not of {size[0]} × {size[1]}",
                f"give the images as they reach it, resized or cut into tiles: --image {self.size[0]},{self.size[1]} once for each",
            )
        return (1, self._side(size[0], self.rows), self._side(size[1], self.columns))

    def _side(self, pixels: int, patch: int) -> int:
        if self.fit == "cut":
            return pixels // patch
        if self.fit == "filled":
            return -(-pixels // (patch * self.merge)) * self.merge
        return max(1, round(pixels / (patch * self.merge))) * self.merge

    def _checked(self, grids: tuple[Grid, ...]) -> Patches:
        for frames, rows, columns in grids:
            if min(frames, rows, columns) < 1:
                raise UllageError(f"an image is too small for patches of {self.rows} × {self.columns} pixels", "give a larger --image")
            if rows % self.merge or columns % self.merge:
                raise UllageError(
                    f"a grid of {rows} × {columns} patches can't be merged {self.merge} × {self.merge}",
                    f"rows and columns are multiples of {self.merge}: --grid {frames},{-(-rows // self.merge) * self.merge},"
                    f"{-(-columns // self.merge) * self.merge}",
                )
        return Patches(grids, self.extra, self.merge)

    @property
    def patches(self) -> Quantity:
        """The patches before merging."""
        return quantity(f"image patches, {self.name}", lambda s: self.of(s).patches)

    @property
    def tokens(self) -> Quantity:
        """The tokens of the tower: patches, and what it adds to each image."""
        return quantity(f"tower tokens, {self.name}", lambda s: self.of(s).tokens)

    @property
    def pairs(self) -> Quantity:
        """The pairs of attention within each image."""
        return quantity(f"tower pairs, {self.name}", lambda s: self.of(s).pairs)

    @property
    def frame_pairs(self) -> Quantity:
        """The pairs of attention within each frame of each image or video."""
        return quantity(f"tower pairs by frame, {self.name}", lambda s: self.of(s).frame_pairs)

    def window_pairs(self, side: int) -> Quantity:
        """Return the pairs of attention within windows of `side` × `side` patches of each frame; those at the edges are smaller."""
        return quantity(f"tower pairs in windows of {side}, {self.name}", lambda s: self.of(s).window_pairs(side))

    @property
    def merged(self) -> Quantity:
        """The tokens after merging."""
        return quantity(f"merged tokens, {self.name}", lambda s: self.of(s).patches // self.merge**2)

    @property
    def count(self) -> Quantity:
        """The images: what is done once for each."""
        return quantity(f"images, {self.name}", lambda s: len(self.of(s).grids))


@dataclass(frozen=True)
class Patches:
    """The grids of one sample, counted."""

    grids: tuple[Grid, ...]
    extra: int
    merge: int

    @property
    def patches(self) -> int:
        """All patches."""
        return sum(frames * rows * columns for frames, rows, columns in self.grids)

    @property
    def tokens(self) -> int:
        """All patches, and the tokens that the tower adds to each image."""
        return self.patches + self.extra * len(self.grids)

    @property
    def pairs(self) -> int:
        """The pairs within each image."""
        return sum((frames * rows * columns + self.extra) ** 2 for frames, rows, columns in self.grids)

    @property
    def frame_pairs(self) -> int:
        """The pairs within each frame."""
        return sum(frames * (rows * columns) ** 2 for frames, rows, columns in self.grids)

    def window_pairs(self, side: int) -> int:
        """Return the pairs within windows: the sum of (rows × columns)² over windows is that over rows times that over columns.

        >>> Patches(((1, 16, 12),), 0, 2).window_pairs(8)  # two windows of 8 × 8, two of 8 × 4
        10240
        """
        return sum(frames * _squares(rows, side) * _squares(columns, side) for frames, rows, columns in self.grids)


def _squares(length: int, side: int) -> int:
    whole, rest = divmod(length, side)
    return whole * side**2 + rest**2


@dataclass(frozen=True)
class Tower:
    """The layers of a vision transformer: widths, and where its weights lie.

    Two paths of `attention` are fused projections and the output, four are q, k, v and output; three of `mlp` are gated.
    `name` stands before the names of the works ("vision."), `stream` is what flows through the layers.
    """

    stack: str
    layers: Sequence[int]
    width: int
    heads: int
    inner: int
    attention: tuple[str, ...] = SEPARATE
    mlp: tuple[str, ...] = ("mlp.fc1", "mlp.fc2")
    dim: int | None = None
    name: str = "vision."
    stream: str = "vision"
    key_heads: int | None = None

    def works(self, rows: Quantity, parts: Parts) -> Iterator[Work]:
        """Yield the layers over `rows` tokens; `parts` are the pairs of attention, and the layers to which they belong."""
        dim = self.dim or self.width // self.heads
        place: dict[str, Any] = {"rows": rows, "stack": self.stack, "module": "", "stream": self.stream}
        yield from self_attention(
            *(self.width, self.heads, self.key_heads or self.heads, dim, self.layers), of=parts, name=f"{self.name}attention",
            modules=self.attention, **place,
        )  # fmt: skip
        gated, name = len(self.mlp) == 3, f"{self.name}mlp"
        yield from mlp(self.width, self.inner, self.layers, gated=gated, name=name, modules=self.mlp, **place)


def patching(images: Images, channels: int, width: int, module: str, *, frames: int = 1, to: str = "vision") -> Work:
    """Return the product of each patch's pixels (of `frames` frames) with the patch embedding."""
    taps = frames * images.rows * images.columns
    return convolution("vision.patch", images.patches, taps, channels, width, module=module, reads=("data",), to=to)


def unused(works: Iterator[Work], layers: Sequence[int]) -> Iterator[Work]:
    """Yield works of a tower, the ones in `layers` apart and without a gradient: they are run, and no loss sees them."""
    for work in works:
        kept, dropped = [i for i in work.layers if i not in layers], [i for i in work.layers if i in layers]
        if work.stack and kept:
            yield replace(work, layers=kept)
        if work.stack and dropped:
            yield replace(work, layers=dropped, gradient=False)
        if not work.stack:
            yield work


def scaled(config: Config, width: int, name: str = "mlp_ratio", default: float = 4.0) -> int:
    """Return a width times a ratio of the configuration, cut to a whole number."""
    ratio = config.number(name, default=default)
    if not 1e-3 <= ratio <= 1e3:
        raise config.error((name,), f"is {ratio}, and must lie between 0.001 and 1,000")
    return max(1, int(width * ratio))


def pair(config: Config, name: str, default: int | None = None) -> tuple[int, int]:
    """Return a field that is one number for rows and columns, or a list of both."""
    if isinstance(config.values.get(name), list | tuple):
        both = config.integers(name, 2, least=1) or []
        return both[0], both[1]
    side = config.integer(name) if default is None else config.integer(name, default=default)
    return side, side
