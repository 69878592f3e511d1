"""What dense decoders share: one plan of layers, at many widths and under many checkpoint paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ullage.models.blocks import embedding, head, self_attention
from ullage.models.config import Config
from ullage.models.sample import FULL, LOGITS, TEXT, Convention, Quantity, Sample, band, pairs
from ullage.models.work import Work, attention, matmul

LM = "ForCausalLM"
CLASSIFIER = "ForSequenceClassification"
TAGGER = "ForTokenClassification"
BARE = "Model"  # the layers without a head, as embedding models use them


@dataclass(frozen=True)
class Layout:
    """Where a decoder's weights lie in its checkpoint: the path of the layers, and the modules below one layer.

    Two modules of `attention` are a projection to queries, keys and values at once and the output, four are q, k, v and
    output. Three modules of `mlp` are gate, up and down; two are up and down, where a gated MLP makes gate and up at once.
    """

    stack: str = "model.layers"
    embedding: str = "model.embed_tokens"
    positions: str = ""
    attention: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
    mlp: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    head: str = "lm_head"

    def under(self, stack: str) -> Layout:
        """Return the same layout with its layers elsewhere, and the embeddings beside them ("model.language_model.layers")."""
        parent = stack.rpartition(".")[0]
        return replace(self, stack=stack, embedding=_beside(parent, self.embedding), positions=_beside(parent, self.positions))


def _beside(parent: str, path: str) -> str:
    return ".".join(part for part in (parent, path.rpartition(".")[2]) if part) if path else ""


@dataclass(frozen=True)
class Shape:
    """The widths of a dense decoder. `spans` are its layers by their sliding window (None: all that came before)."""

    width: int
    heads: int
    key_heads: int
    dim: int
    inner: int
    vocabulary: int
    layers: range
    gated: bool
    spans: Sequence[tuple[int | None, Sequence[int]]] = ()

    def __post_init__(self) -> None:
        if not self.spans:
            object.__setattr__(self, "spans", [(None, self.layers)])


def dense(config: Config, shape: Shape, layout: Layout) -> Iterator[Work]:
    """Yield a whole decoder: embedding, attention and MLP of each layer, and the head that the architecture's name asks for."""
    layout = placed(config, layout)
    yield from embeddings(layout)
    for window, members in shape.spans:
        yield from decoder_attention(shape, members, pairs(window), layout)
    yield from feed_forward(shape.width, shape.inner, shape.layers, gated=shape.gated, stack=layout.stack, modules=layout.mlp)
    yield from output(config, shape.width, shape.vocabulary, layout.head)


def placed(config: Config, layout: Layout) -> Layout:
    """Return the layout as it is in this class's checkpoint: a bare model lacks the prefix of the one with a head."""
    return layout.under(layout.stack.partition(".")[2]) if bare(config) else layout


def bare(config: Config) -> bool:
    """Return whether the architecture is a model without a head (`LlamaModel`, but not `GPT2LMHeadModel`)."""
    name = config.architecture
    return not config.path and name.endswith(BARE) and not name.endswith("LMHeadModel")


def embeddings(layout: Layout) -> Iterator[Work]:
    """Yield the token embedding, and the learned positions where there are any."""
    yield embedding(module=layout.embedding)
    if layout.positions:
        yield embedding(module=layout.positions)


def decoder_attention(shape: Shape, members: Sequence[int], of: Quantity, layout: Layout) -> Iterator[Work]:
    """Yield the attention of some layers, with its projections fused or apart as the checkpoint has them."""
    stack, paths = layout.stack, layout.attention
    if len(paths) == 2:
        yield from fused_attention(shape.width, shape.heads, shape.key_heads, shape.dim, members, of=of, stack=stack, modules=paths)
        return
    module = paths[0].rpartition(".")[0]
    q, k, v, out = (path.rpartition(".")[2] for path in paths)
    yield from self_attention(
        shape.width, shape.heads, shape.key_heads, shape.dim, members, of=of, stack=stack, module=module, modules=(q, k, v, out)
    )


def fused_attention(
    width: int,
    heads: int,
    key_heads: int,
    dim: int,
    layers: Sequence[int],
    *,
    of: Quantity | None = None,
    stack: str = "model.layers",
    modules: Sequence[str] = ("self_attn.qkv_proj", "self_attn.o_proj"),
) -> Iterator[Work]:
    """Yield attention whose queries, keys and values are one projection."""
    made = "attention.qkv"
    yield matmul(made, TEXT, width, (heads + 2 * key_heads) * dim, layers, stack=stack, module=modules[0], to=None)
    yield from attention(of or pairs(), heads, dim, layers, stack=stack, inputs=(made, made, made))
    yield matmul("attention.out", TEXT, heads * dim, width, layers, stack=stack, module=modules[1], reads=("attention.values",))


def feed_forward(
    width: int, inner: int, layers: Sequence[int], *, gated: bool, stack: str = "model.layers", modules: Sequence[str]
) -> Iterator[Work]:
    """Yield the MLP at the full paths of its modules: gate, up and down; gate and up at once and down; or up and down."""
    *before, down = modules
    names = {(True, 2): ("mlp.gate", "mlp.up"), (True, 1): ("mlp.gate_up",), (False, 1): ("mlp.up",)}[gated, len(before)]
    columns = 2 * inner if gated and len(before) == 1 else inner
    for name, path in zip(names, before, strict=True):
        yield matmul(name, TEXT, width, columns, layers, stack=stack, module=path, to=None)
    yield matmul("mlp.down", TEXT, inner, width, layers, stack=stack, module=down, reads=names)


def output(config: Config, width: int, vocabulary: int, module: str = "lm_head", rows: Quantity = LOGITS) -> Iterator[Work]:
    """Yield the head that the architecture's name asks for: logits over the vocabulary, scores of labels at each token, or none."""
    if config.architecture.endswith((CLASSIFIER, TAGGER)):
        yield matmul("head", TEXT, width, labels(config), module="score")
    elif not bare(config):
        yield head(width, vocabulary, rows, module)


def labels(config: Config) -> int:
    """Return how many labels a classifier scores: `id2label` counts them, else `num_labels`; two is the library's default."""
    named = config.values.get("id2label")
    return len(named) if isinstance(named, dict) and named else config.integer("num_labels", default=2)


def family(stem: str, *heads: str, kind: str = "") -> tuple[str, ...]:
    """Return the names of a type: its classes, with these heads, and its `model_type`.

    >>> family("Llama", "ForCausalLM", "Model", kind="llama")
    ('LlamaForCausalLM', 'LlamaModel', 'llama')
    """
    return (*(stem + head for head in heads), *((kind,) if kind else ()))


def documented(config: Config, **defaults: Any) -> Config:
    """Return the configuration with the defaults of its class where a field is missing; a null stays missing."""
    return config.replaced(**{name: value for name, value in defaults.items() if name not in config.values})


def head_dim(config: Config, width: int, heads: int) -> int:
    """Return the width of a head: `head_dim`, or width / heads, which must divide."""
    if config.has("head_dim"):
        return config.integer("head_dim")
    if width % heads:
        raise config.error(("hidden_size", "n_embd", "d_model"), f"is {width:,}, which {heads:,} heads do not divide")
    return width // heads


def key_heads(config: Config, heads: int, *names: str) -> int:
    """Return the heads of keys and values (all heads by default); groups of equal size share one."""
    names = names or ("num_key_value_heads",)
    count = config.integer(*names, default=heads)
    if heads % count:
        raise config.error(names, f"is {count:,}, which does not divide {heads:,} heads")
    return count


def two_sided(reach: int | None = None) -> Quantity:
    """Return the query-key pairs of text that sees both sides: all, or those less than `reach` tokens apart; `full` counts all.

    >>> two_sided(2).of(Sample(text=4), "causal")
    10
    """

    def of(sample: Sample, convention: Convention) -> int:
        if convention == FULL or reach is None:
            return sample.text**2
        return 2 * band(sample.text, 0, reach) - sample.text  # each token is its own pair once

    return Quantity(f"pairs on both sides, less than {reach} apart" if reach else "pairs on both sides", of)
