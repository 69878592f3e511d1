"""Encoder-decoders after BART: BART, mBART, PLBart, Pegasus, Marian, Blenderbot, M2M-100, NLLB; and what T5 and Whisper share with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ullage.models.blocks import head, self_attention
from ullage.models.config import Config
from ullage.models.decoders import head_dim
from ullage.models.model import model
from ullage.models.sample import CROSS_PAIRS, TEXT, Quantity, pairs, quantity
from ullage.models.work import Work, attention, lookup, matmul

# A step of generation (with context) finds the encoder's work done, and the keys and values of cross-attention in the cache
ENCODED = quantity("encoder tokens, not cached", lambda s: 0 if s.context else s.encoder)
ENCODED_PAIRS = quantity("encoder pairs, not cached", lambda s: 0 if s.context else s.encoder**2)
GENERATORS = ("Bart", "MBart", "PLBart", "Pegasus", "Blenderbot", "BlenderbotSmall", "M2M100")


@dataclass(frozen=True)
class Side:
    """One of the two sides: its layers and widths, and where its weights lie.

    `feed` are the modules of gate, up and down; without a gate the first is never used.
    """

    name: str
    stack: str
    layers: Sequence[int]
    width: int
    heads: int
    dim: int
    inner: int
    gated: bool = False
    attention: str = "self_attn"
    cross: str = "encoder_attn"
    projections: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "out_proj")
    feeds: tuple[str, str, str] = ("", "fc1", "fc2")

    def self_attention(self, rows: Quantity, of: Quantity, stream: str) -> Iterator[Work]:
        """Yield the attention of this side to itself."""
        yield from self_attention(
            self.width, self.heads, self.heads, self.dim, self.layers, rows=rows, of=of, name=f"{self.name}.attention",
            stack=self.stack, module=self.attention, modules=self.projections, stream=stream,
        )  # fmt: skip

    def mlp(self, rows: Quantity, stream: str) -> Iterator[Work]:
        """Yield the feed-forward block of this side."""
        group, stack = f"{self.name}.mlp", self.stack
        gate, up, down = self.feeds
        made = [f"{group}.gate", f"{group}.up"] if self.gated else [f"{group}.up"]
        for name, module in zip(made, [gate, up] if self.gated else [up], strict=True):
            yield matmul(name, rows, self.width, self.inner, self.layers, module=module, stack=stack, reads=(stream,), to=None)
        yield matmul(f"{group}.down", rows, self.inner, self.width, self.layers, module=down, stack=stack, reads=tuple(made), to=stream)


def encoder(side: Side, rows: Quantity = ENCODED, of: Quantity = ENCODED_PAIRS) -> Iterator[Work]:
    """Yield the layers of an encoder: all tokens attend to all."""
    yield from side.self_attention(rows, of, "encoder")
    yield from side.mlp(rows, "encoder")


def decoder(side: Side, source_width: int, rows: Quantity = ENCODED, of: Quantity = CROSS_PAIRS) -> Iterator[Work]:
    """Yield the layers of a decoder: causal attention, then attention to the encoder, then the MLP.

    Keys and values of the latter are made for the encoder's tokens, queries and output for the decoder's.
    """
    yield from side.self_attention(TEXT, pairs(), "stream")
    inner, layers, stack = side.heads * side.dim, side.layers, side.stack
    q, k, v, out = (f"{side.cross}.{module}" for module in side.projections)
    yield matmul("cross_attention.q", TEXT, side.width, inner, layers, stack=stack, module=q, to=None)
    for what, module in (("k", k), ("v", v)):
        name = f"cross_attention.{what}"
        yield matmul(name, rows, source_width, inner, layers, stack=stack, module=module, reads=("encoder",), to=None)
    yield from attention(of, side.heads, side.dim, layers, name="cross_attention", stack=stack)
    yield matmul("cross_attention.out", TEXT, inner, side.width, layers, stack=stack, module=out, reads=("cross_attention.values",))
    yield from side.mlp(TEXT, "stream")


def sides(config: Config, base: str) -> tuple[Side, Side]:
    """Return encoder and decoder of a configuration in BART's words; `base` is where the model lies in one with a head."""
    width = config.integer("d_model")

    def side(name: str) -> Side:
        heads = config.integer(f"{name}_attention_heads")
        inner = config.integer(f"{name}_ffn_dim")
        dim = head_dim(config, width, heads, ())
        return Side(name, f"{base}{name}.layers", config.layers(f"{name}_layers"), width, heads, dim, inner)

    return side("encoder"), side("decoder")


@model(
    *("bart", "mbart", "plbart", "pegasus", "marian", "blenderbot", "blenderbot-small", "m2m_100", "MarianMTModel", "MarianModel"),
    *(f"{name}{end}" for name in GENERATORS for end in ("ForConditionalGeneration", "Model")),
    kind="encoder-decoder",
    source="transformers 5.23, models/bart and its copies; Lewis et al., arXiv:1910.13461; verified to the integer against traces",
)
def bart(config: Config) -> Iterator[Work]:
    """BART, mBART, PLBart, Pegasus, Marian, Blenderbot, M2M-100 and NLLB: encoder and decoder with cross-attention, ungated MLPs.

    For E encoder and T decoder tokens: 2E·L(4h² + 2hf) + 4hL × E² on one side, 2T·L(6h² + 2hf) + 4E·L·h² + 4hL × (T² + TE)
    on the other, and 2hV × T for the head. With a context (a step of generation) the encoder and the cross-attention's keys
    and values are in the cache, and cost nothing.
    """
    bare = config.architecture.endswith("Model") and config.architecture != "MarianMTModel"
    base = "" if bare else "model."
    first, second = sides(config, base)
    shared = not config.architecture.startswith("Marian") or config.flag("share_encoder_decoder_embeddings", True)
    tables = ("shared", "shared") if shared else ("encoder.embed_tokens", "decoder.embed_tokens")
    yield lookup("embedding", ENCODED, f"{base}{tables[0]}", to="encoder")
    yield lookup("embedding", TEXT, f"{base}{tables[1]}")
    yield from encoder(first)
    yield from decoder(second, first.width)
    if not bare:
        yield head(second.width, config.integer("decoder_vocab_size", "vocab_size"))
