"""Llama 3.2 Vision: a tower of two stages over tiles, and Llama whose text attends to the images in layers of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ullage.errors import UllageError
from ullage.models.blocks import embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import documented, head_dim
from ullage.models.images import Tower
from ullage.models.model import model
from ullage.models.sample import TEXT, Quantity, Sample, quantity
from ullage.models.work import Work, attention, convolution, matmul

VISION = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8}
TEXTUAL = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8}
CROSS_LAYERS = [3, 8, 13, 18, 23, 28, 33, 38]
STACK = "model.language_model.layers"


@model(
    *("mllama", "MllamaForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source="transformers 5.23, models/mllama; arXiv:2407.21783; verified to the integer against traces",
)
def mllama(config: Config) -> Iterator[Work]:
    """Llama 3.2 Vision: tiles through two stages of a ViT, Llama, and cross-attention of the text to all tiles' tokens.

    An image is cut into tiles of image_size, those at its edges filled; all tiles of an image see each other. A tile's P + 1
    tokens are padded to a multiple of 8 in the tower. Tiles that fill an image up to max_num_tiles are masked, and left out,
    as is the product that makes the mask: 2 × (tokens of an image)². Without images the layers with cross-attention are
    skipped; with a context the images' keys and values are cached.
    """
    seen, section = documented(config.section("vision_config"), **VISION), documented(config.section("text_config"), **TEXTUAL)
    side, patch = seen.integer("image_size", default=448), seen.integer("patch_size", default=14, most=1024)
    if side < patch:
        raise seen.error(("image_size",), f"is {side}, less than a patch of {patch}")
    tiles = Tiles(side, (side // patch) ** 2)
    yield from _tower(seen, tiles, patch)
    width = section.integer("hidden_size")
    merged = "model.multi_modal_projector"
    outer = seen.integer("vision_output_dim", default=7680)
    yield matmul("vision.merger", tiles.tokens, outer, width, module=merged, reads=("vision",), to="images")
    yield embedding(module="model.language_model.embed_tokens")
    yield from _text(section, width, tiles)
    yield head(width, section.integer("vocab_size", default=128_256))


def _tower(seen: Config, tiles: Tiles, patch: int) -> Iterator[Work]:
    width, channels = seen.integer("hidden_size"), seen.integer("num_channels", default=3)
    heads, inner = seen.integer("attention_heads", "num_attention_heads", default=16), seen.integer("intermediate_size")
    base, module = "model.vision_model.", "model.vision_model.patch_embedding"
    yield convolution("vision.patch", tiles.patches, patch**2, channels, width, module=module, reads=("data",), to="vision")
    queries = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
    for stage, field in (("transformer", "num_hidden_layers"), ("global_transformer", "num_global_layers")):
        layers = seen.layers(field)
        tower = Tower(f"{base}{stage}.layers", layers, width, heads, inner, queries, dim=head_dim(seen, width, heads))
        yield from tower.works(tiles.padded, [(tiles.pairs, layers)])


def _text(section: Config, width: int, tiles: Tiles) -> Iterator[Work]:
    layers = section.layers()
    given = section.integers("cross_attention_layers")
    crossed = [i for i in layers if i in set(CROSS_LAYERS if given is None else given)]
    plain = [i for i in layers if i not in crossed]
    heads, inner = section.integer("num_attention_heads"), section.integer("intermediate_size")
    keys, dim = section.integer("num_key_value_heads"), head_dim(section, width, heads)
    yield from self_attention(width, heads, keys, dim, plain, stack=STACK)
    yield from _cross_attention(width, heads, keys, dim, crossed, tiles)
    yield from mlp(width, inner, plain, gated=True, stack=STACK)
    yield from mlp(width, inner, crossed, gated=True, stack=STACK, rows=tiles.text)


def _cross_attention(width: int, heads: int, keys: int, dim: int, layers: Sequence[int], tiles: Tiles) -> Iterator[Work]:
    name, module = "cross_attention", "cross_attn"
    yield matmul(f"{name}.q", tiles.text, width, heads * dim, layers, stack=STACK, module=f"{module}.q_proj", to=None)
    for what in ("k", "v"):
        place = f"{module}.{what}_proj"
        yield matmul(f"{name}.{what}", tiles.tokens, width, keys * dim, layers, stack=STACK, module=place, reads=("images",), to=None)
    yield from attention(tiles.crossed, heads, dim, layers, name=name, stack=STACK)
    out, made = f"{module}.o_proj", (f"{name}.values",)
    yield matmul(f"{name}.out", tiles.text, heads * dim, width, layers, stack=STACK, module=out, reads=made)


@dataclass(frozen=True)
class Tiles:
    """The tiles of a sample's images: squares of `side` pixels, of so many `patches` each."""

    side: int
    each: int

    def counts(self, sample: Sample) -> tuple[int, ...]:
        """Return the tiles of each image; raises UllageError for grids, which don't tell them."""
        if sample.grids or (sample.image_tokens and not sample.pixels):
            raise UllageError("this model cuts images into tiles, and needs their size", f"--image {self.side},{self.side}")
        return tuple(-(-height // self.side) * -(-width // self.side) for height, width in sample.pixels)

    def _new(self, name: str, factor: int) -> Quantity:
        return quantity(f"{name} of tiles of {self.each}", lambda s: 0 if s.context else sum(self.counts(s)) * factor)

    @property
    def _filled(self) -> int:
        return -(-(self.each + 1) // 8) * 8

    @property
    def patches(self) -> Quantity:
        """The patches of all tiles."""
        return self._new("patches", self.each)

    @property
    def tokens(self) -> Quantity:
        """The patches and class tokens of all tiles: what the text attends to."""
        return self._new("tokens", self.each + 1)

    @property
    def padded(self) -> Quantity:
        """The tokens of the tower, a multiple of 8 a tile."""
        return self._new("padded tokens", self._filled)

    @property
    def pairs(self) -> Quantity:
        """The pairs of the tower's attention, within each image."""
        return quantity(
            f"pairs of tiles of {self.each}", lambda s: 0 if s.context else sum((n * self._filled) ** 2 for n in self.counts(s))
        )

    @property
    def crossed(self) -> Quantity:
        """The pairs of attention from the text to the images, cached or not."""
        return quantity(f"text-image pairs of tiles of {self.each}", lambda s: s.text * sum(self.counts(s)) * (self.each + 1))

    @property
    def text(self) -> Quantity:
        """The text tokens of samples with images: layers with cross-attention are skipped in the others."""
        return quantity("text tokens beside images", lambda s: TEXT.of(s, "full") if s.pixels else 0)
