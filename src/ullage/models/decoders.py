"""Dense decoders: what they share, and how a type departs from Llama, as data: one row a type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ullage.models.blocks import below, embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.sample import FULL, TEXT, Convention, Quantity, Sample, band, pairs
from ullage.models.work import Work, matmul

LM = "ForCausalLM"
CLASSIFIER = "ForSequenceClassification"
TAGGER = "ForTokenClassification"
BARE = "Model"  # the layers without a head, as embedding models use them
ALL = (LM, CLASSIFIER, TAGGER, BARE)
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
FULL_ATTENTION, SLIDING_ATTENTION = "full_attention", "sliding_attention"
Spans = Sequence[tuple[int | None, Sequence[int]]]  # layers by their sliding window (None: all that came before)


@dataclass(frozen=True)
class CheckpointLayout:
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

    def under(self, stack: str) -> CheckpointLayout:
        """Return the same layout with its layers elsewhere, and the embeddings beside them ("model.language_model.layers")."""
        parent = stack.rpartition(".")[0]
        return replace(self, stack=stack, embedding=_beside(parent, self.embedding), positions=_beside(parent, self.positions))


def _beside(parent: str, path: str) -> str:
    return below(parent, path.rpartition(".")[2]) if path else ""


def grouped(config: Config, heads: int) -> int:
    """Return the heads of keys and values that `num_key_value_heads` says, all by default."""
    return key_heads(config, heads)


def every_head(_: Config, heads: int) -> int:
    """Return as many heads of keys and values as of queries, whatever the configuration says."""
    return heads


@dataclass(frozen=True)
class DensePlan:
    """How one type departs from Llama.

    `fields` are what its configuration class documents for fields that files leave out. `sizes` are the class's own widths
    (in the order of SIZES): they hold only in a section of a larger file (`text_config`), which lists what differs from them.
    `window` is "none", "all" (one for all layers), "typed" (in the layers whose type says so; by default not in every n-th
    layer, the last of n or the `first`) or a function. `words` are the fields of a width where they are not Llama's; `inner`
    times the width is the MLP's where no field says. `keys` says how many heads of keys there are. `prepared` brings a
    configuration into the plan's words. `both_ways` types can be told to see both sides; `narrow` is the field of the
    embeddings' width where they may be narrower than the layers.
    """

    stem: str
    kind: str
    heads: tuple[str, ...] = (LM, BARE)
    fields: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, int, int, int, int] | None = None
    gated: bool = True
    window: str | Callable[[Config, range], Spans] = "none"
    every: int = 0
    first: bool = False
    layout: CheckpointLayout = field(default_factory=CheckpointLayout)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inner: int = 0
    keys: Callable[[Config, int], int] = grouped
    prepared: Callable[[Config], Config] = lambda config: config
    both_ways: bool = False
    narrow: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that configs use for this type."""
        return (*family(self.stem, *self.heads, kind=self.kind), *self.aliases)

    def works(self, config: Config) -> Iterator[Work]:
        """Yield a whole decoder: embedding, attention and MLP of each layer, and the head that the architecture's name asks for."""
        config, layout = self._documented(self.prepared(config)), placed(config, self.layout)
        width, heads = self._integer(config, "hidden_size"), self._integer(config, "num_attention_heads")
        layers, keys = config.layers(*self.words.get("num_hidden_layers", ())), self.keys(config, heads)
        dim = head_dim(config, width, heads, self.words.get("head_dim", ("head_dim",)))
        inner = self._integer(config, "intermediate_size", **({"default": self.inner * width} if self.inner else {}))
        vocabulary = self._integer(config, "vocab_size")
        narrow = config.integer(self.narrow, default=width) if self.narrow else width
        parent = layout.stack.rpartition(".")[0]
        yield embedding(module=layout.embedding)
        if layout.positions:
            yield embedding(module=layout.positions)
        if narrow != width:
            yield matmul("embedding.in", TEXT, narrow, width, module=f"{parent}.project_in")
        for of, members in self._seen(config, layers):
            yield from self_attention(width, heads, keys, dim, members, of=of, stack=layout.stack, module="", modules=layout.attention)
        yield from mlp(width, inner, layers, gated=self.gated, stack=layout.stack, module="", modules=layout.mlp)
        if narrow != width:
            yield matmul("embedding.out", TEXT, width, narrow, module=f"{parent}.project_out")
        yield from output(config, narrow, vocabulary, layout.head)

    def _documented(self, config: Config) -> Config:
        config = documented(config, **self.fields)
        return documented(config, **dict(zip(SIZES, self.sizes, strict=True))) if config.path and self.sizes else config

    def _integer(self, config: Config, name: str, **default: int) -> int:
        return config.integer(*self.words.get(name, (name,)), **default)

    def _seen(self, config: Config, layers: range) -> Iterator[tuple[Quantity, Sequence[int]]]:
        """Yield the pairs of attention with their layers; where attention sees both sides, half of a window lies on each."""
        spans = self.window(config, layers) if callable(self.window) else self._spans(config, layers)
        both = self.both_ways and config.flag("use_bidirectional_attention")
        for window, members in spans or [(None, layers)]:
            yield (two_sided(None if window is None else window // 2 + 1) if both else pairs(window)), members

    def _spans(self, config: Config, layers: range) -> Spans:
        if self.window == "none":
            return [(None, layers)]
        if self.window == "all":
            return windows(config.replaced(layer_types=None), layers)
        return windows(patterned(config, layers, self.every, self.first), layers)


def patterned(config: Config, layers: range, every: int, first: bool = False) -> Config:
    """Return the configuration with `layer_types` where it has none.

    Every n-th layer is full, the last of each n or the `first`; n is `sliding_window_pattern`, else `every` (0: no pattern).
    EXAONE 4 writes the pattern in letters ("LLLG"), of which G is full.
    """
    letters = config.values.get("sliding_window_pattern")
    if config.has("layer_types") or not every:
        return config
    if isinstance(letters, str) and letters:
        full = [letters[i % len(letters)] == "G" for i in layers]
    else:
        every = config.integer("sliding_window_pattern", default=every)
        full = [(i if first else i + 1) % every == 0 for i in layers]
    return config.replaced(layer_types=[FULL_ATTENTION if f else SLIDING_ATTENTION for f in full])


def windows(config: Config, layers: range) -> list[tuple[int | None, list[int]]]:
    """Return the layers by their sliding window (None: all that came before).

    `layer_types` names them where it is there; else a `sliding_window` holds for all layers (Mistral), unless
    `use_sliding_window` says no (Qwen, whose first `max_window_layers` are full when it says yes).
    """
    window = config.optional("sliding_window") if config.values.get("sliding_window") else None
    kinds = config.words("layer_types", len(layers), {FULL_ATTENTION, SLIDING_ATTENTION})
    if window is None or not config.flag("use_sliding_window", True):
        sliding: set[int] = set()
    elif kinds:
        sliding = {i for i in layers if kinds[i] == SLIDING_ATTENTION}
    else:
        sliding = set(layers[config.integer("max_window_layers", default=0, least=0) :])
    parts = [(None, [i for i in layers if i not in sliding]), (window, [i for i in layers if i in sliding])]
    return [(w, members) for w, members in parts if members]


def moved(works: Iterable[Work], stack: str, old: str = "model.layers") -> Iterator[Work]:
    """Yield the works of a language model as they lie within a larger one: its layers at `stack`, the embedding beside them.

    >>> from ullage.models.blocks import embedding
    >>> next(moved([embedding()], "model.language_model.layers")).module
    'model.language_model.embed_tokens'
    """
    inside, outside = old.rpartition(".")[0], stack.rpartition(".")[0]
    for work in works:
        if work.stack == old:
            yield replace(work, stack=stack)
        elif not work.stack and work.module.startswith(f"{inside}."):
            yield replace(work, module=f"{outside}{work.module.removeprefix(inside)}".lstrip("."))
        else:
            yield work


def placed(config: Config, layout: CheckpointLayout) -> CheckpointLayout:
    """Return the layout as it is in this class's checkpoint: a bare model lacks the prefix of the one with a head."""
    return layout.under(layout.stack.partition(".")[2]) if bare(config) else layout


def bare(config: Config) -> bool:
    """Return whether the architecture is a model without a head (`LlamaModel`, but not `GPT2LMHeadModel`)."""
    name = config.architecture
    return not config.path and name.endswith(BARE) and not name.endswith("LMHeadModel")


def output(config: Config, width: int, vocabulary: int, module: str = "lm_head") -> Iterator[Work]:
    """Yield the head that the architecture's name asks for: logits over the vocabulary, scores of labels at each token, or none."""
    if config.architecture.endswith((CLASSIFIER, TAGGER)):
        yield matmul("head", TEXT, width, labels(config), module="score")
    elif not bare(config):
        yield head(width, vocabulary, module=module)


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


def head_dim(config: Config, width: int, heads: int, names: Sequence[str] = ("head_dim",)) -> int:
    """Return the width of a head: that of the field, or width / heads, which must divide."""
    if config.has(*names):
        return config.integer(*names)
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
