"""Encoders of text (BERT and its like, ModernBERT) and encoder-decoders of text (BART, T5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.models.blocks import cross_attention, embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import head_dim, two_sided
from ullage.models.model import in_transformers, model, transformers_model
from ullage.models.planes import labels
from ullage.models.sample import CROSS_PAIRS, ONCE, TEXT, Quantity, pairs, quantity, square
from ullage.models.work import Work, lookup, matmul

TEXT_PAIRS = square("text pairs, both ways", lambda s: s.text)
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


@dataclass(frozen=True)
class _Paths:
    """Where the weights of a family lie: the model in a model with a head, its layers, and the modules of a layer."""

    base: str
    stack: str = "encoder.layer"
    attention: tuple[str, str, str, str] = ("self.query", "self.key", "self.value", "output.dense")
    mlp: tuple[str, str] = ("intermediate.dense", "output.dense")


_BERT, _ROBERTA, _ELECTRA = _Paths("bert"), _Paths("roberta"), _Paths("electra")
_DISTILLED = _Paths("distilbert", "transformer.layer", ("q_lin", "k_lin", "v_lin", "out_lin"), ("ffn.lin1", "ffn.lin2"))


@transformers_model(
    "models/bert; Devlin et al., arXiv:1810.04805", "bert", "BertForPreTraining",
    *(f"Bert{name}" for name in HEADS), kind="encoder",
)  # fmt: skip
def bert(config: Config) -> Iterator[Work]:
    """BERT: attention of all tokens to all, ungated MLP; a bare configuration has the classifier of sequences.

    2TL(4h² + 2hf) + 4hL × T² FLOPs forward for a sequence of T tokens, and 2h² + 2h × labels once for pooler and classifier.
    """
    yield from _trunk(config, _BERT)
    width = config.integer("hidden_size")
    kind = _kind(config)
    base = "" if kind == "Model" else "bert."
    if kind in ("Model", "ForSequenceClassification", "ForPreTraining"):
        yield matmul("head.pooler", ONCE, width, width, module=f"{base}pooler.dense", to=None)
    if kind in ("ForMaskedLM", "ForPreTraining"):
        yield matmul("head.dense", TEXT, width, width, module="cls.predictions.transform.dense", to=None)
        yield _vocabulary(config, width, "cls.predictions.decoder")
    if kind == "ForPreTraining":
        yield matmul("head.next", ONCE, width, 2, module="cls.seq_relationship", reads=("head.pooler",), to=None)
    yield from _classifiers(config, width, kind, "head.pooler")


@transformers_model(
    "models/roberta and its copies; Liu et al., arXiv:1907.11692", "roberta", "xlm-roberta", "camembert",
    *(f"{family}{name}" for family in ("Roberta", "XLMRoberta", "Camembert") for name in HEADS),
    kind="encoder",
)  # fmt: skip
def roberta(config: Config) -> Iterator[Work]:
    """RoBERTa, XLM-RoBERTa and CamemBERT: BERT whose classifier has a layer of its own instead of the pooler."""
    yield from _trunk(config, _ROBERTA)
    width = config.integer("hidden_size")
    kind = _kind(config)
    if kind == "Model":
        yield matmul("head.pooler", ONCE, width, width, module="pooler.dense", to=None)
    if kind == "ForMaskedLM":
        yield matmul("head.dense", TEXT, width, width, module="lm_head.dense", to=None)
        yield _vocabulary(config, width, "lm_head.decoder")
    if kind == "ForSequenceClassification":
        yield matmul("head.dense", ONCE, width, width, module="classifier.dense", to=None)
    yield from _classifiers(config, width, kind, "head.dense", "classifier.out_proj")


@transformers_model(
    "models/electra; Clark et al., arXiv:2003.10555", "electra", "ElectraForPreTraining",
    *(f"Electra{name}" for name in HEADS), kind="encoder",
)  # fmt: skip
def electra(config: Config) -> Iterator[Work]:
    """ELECTRA: BERT whose embeddings may be narrower than its layers; generator, discriminator and classifiers."""
    width = config.integer("hidden_size", default=256)
    narrow = config.integer("embedding_size", default=128)
    kind = _kind(config)
    yield from _trunk(config, _ELECTRA, narrow)
    if kind == "ForPreTraining":
        yield matmul("head.dense", TEXT, width, width, module="discriminator_predictions.dense", to=None)
        yield matmul("head", TEXT, width, 1, module="discriminator_predictions.dense_prediction", reads=("head.dense",), to=None)
    if kind == "ForMaskedLM":
        yield matmul("head.dense", TEXT, width, narrow, module="generator_predictions.dense", to=None)
        yield _vocabulary(config, narrow, "generator_lm_head")
    if kind == "ForSequenceClassification":
        yield matmul("head.dense", ONCE, width, width, module="classifier.dense", to=None)
    yield from _classifiers(config, width, kind, "head.dense", "classifier.out_proj")


@transformers_model(
    "models/distilbert; Sanh et al., arXiv:1910.01108", "distilbert",
    *(f"DistilBert{name}" for name in HEADS), kind="encoder",
)  # fmt: skip
def distilbert(config: Config) -> Iterator[Work]:
    """DistilBERT: BERT with half the layers, no pooler, and fields of its own (dim, n_layers, hidden_dim)."""
    width = config.integer("dim", "hidden_size")
    renamed = config.replaced(
        hidden_size=width,
        num_hidden_layers=len(config.layers("n_layers", "num_hidden_layers")),
        num_attention_heads=config.integer("n_heads", "num_attention_heads"),
        intermediate_size=config.integer("hidden_dim", "intermediate_size"),
    )
    yield from _trunk(renamed, _DISTILLED)
    kind = _kind(config)
    if kind == "ForMaskedLM":
        yield matmul("head.dense", TEXT, width, width, module="vocab_transform", to=None)
        yield _vocabulary(config, width, "vocab_projector")
    if kind == "ForSequenceClassification":
        yield matmul("head.dense", ONCE, width, width, module="pre_classifier", to=None)
    yield from _classifiers(config, width, kind, "head.dense")


def _kind(config: Config) -> str:
    """Return the head: the end of the class's name; a bare model_type classifies sequences."""
    ends = (*HEADS, "ForPreTraining")
    return next((end for end in ends if config.architecture.endswith(end)), "ForSequenceClassification")


def _trunk(config: Config, paths: _Paths, narrow: int | None = None) -> Iterator[Work]:
    """Yield embeddings and layers; `narrow` is the width of embeddings that are projected up where it differs."""
    layers, width = config.layers(), config.integer("hidden_size")
    heads, inner = config.integer("num_attention_heads"), config.integer("intermediate_size")
    base = "" if _kind(config) == "Model" else f"{paths.base}."
    stack = f"{base}{paths.stack}"
    yield embedding(module=f"{base}embeddings.word_embeddings")
    if narrow not in (None, width):
        yield matmul("embedding.project", TEXT, narrow or width, width, module=f"{base}embeddings_project")
    dim = head_dim(config, width, heads, ())
    yield from self_attention(width, heads, heads, dim, layers, of=TEXT_PAIRS, stack=stack, module="attention", modules=paths.attention)
    yield from mlp(width, inner, layers, gated=False, stack=stack, module="", modules=paths.mlp)


def _vocabulary(config: Config, width: int, module: str) -> Work:
    """Return the product with the vocabulary, for each token: masked or not, all are predicted."""
    return matmul("head", TEXT, width, config.integer("vocab_size"), module=module, reads=("head.dense",), to=None)


def _classifiers(config: Config, width: int, kind: str, pooled: str, module: str = "classifier") -> Iterator[Work]:
    """Yield the last product of a classifier: once a sequence from what was pooled, or for each token."""
    if kind == "ForSequenceClassification":
        yield matmul("head", ONCE, width, labels(config), module=module, reads=(pooled,), to=None)
    if kind == "ForTokenClassification":
        yield matmul("head", TEXT, width, labels(config), module="classifier", to=None)
    if kind == "ForQuestionAnswering":
        yield matmul("head", TEXT, width, labels(config), module="qa_outputs", to=None)


LOCAL, GLOBAL = "sliding_attention", "full_attention"


@transformers_model(
    "models/modernbert; Warner et al., arXiv:2412.13663", "modernbert", "ModernBertModel",
    "ModernBertForMaskedLM", "ModernBertForSequenceClassification", "ModernBertForTokenClassification",
    kind="encoder", causal=True,
)  # fmt: skip
def modernbert(config: Config) -> Iterator[Work]:
    """ModernBERT: gated MLP, fused projections, every third layer global, the others within a window on both sides.

    Its attention is not causal; the conventions differ by the window: "causal" counts the tokens at most local_attention / 2
    to the left or right, "full" all pairs, as a trace does. A bare configuration has the classifier of sequences.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    heads, inner = config.integer("num_attention_heads"), config.integer("intermediate_size")
    bare = config.architecture == "ModernBertModel"
    base = "" if bare else "model."
    stack, reach = f"{base}layers", config.integer("local_attention", default=128) // 2
    yield embedding(module=f"{base}embeddings.tok_embeddings")
    of = [(TEXT_PAIRS if near is None else two_sided(near + 1), members) for near, members in _reaches(config, layers, reach)]
    dim = head_dim(config, width, heads)
    yield from self_attention(width, heads, heads, dim, layers, of=of, stack=stack, module="attn", modules=("Wqkv", "Wo"))
    yield from mlp(width, inner, layers, gated=True, stack=stack, modules=("Wi", "Wo"))
    if not bare:
        yield from _heads(config, width)


def _heads(config: Config, width: int) -> Iterator[Work]:
    words, tokens = (config.architecture.endswith(end) for end in ("ForMaskedLM", "ForTokenClassification"))
    rows = TEXT if words or tokens else ONCE
    yield matmul("head.dense", rows, width, width, module="head.dense", to=None)
    columns = config.integer("vocab_size") if words else labels(config)
    yield matmul("head", rows, width, columns, module="decoder" if words else "classifier", reads=("head.dense",), to=None)


def _reaches(config: Config, layers: range, reach: int) -> list[tuple[int | None, list[int]]]:
    kinds = config.words("layer_types", len(layers), {LOCAL, GLOBAL})
    if kinds is None:
        every = config.integer("global_attn_every_n_layers", default=3)
        kinds = [LOCAL if i % every else GLOBAL for i in layers]
    parts = [(None, [i for i in layers if kinds[i] == GLOBAL]), (reach, [i for i in layers if kinds[i] == LOCAL])]
    return [(near, members) for near, members in parts if members]


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

    def works(self, rows: Quantity, of: Quantity, stream: str, between: Iterable[Work] = ()) -> Iterator[Work]:
        """Yield this side's attention to itself, what stands behind it, and its feed-forward block."""
        place: dict[str, Any] = {"stack": self.stack, "stream": stream}
        yield from self_attention(
            *(self.width, self.heads, self.heads, self.dim, self.layers), rows=rows, of=of, name=f"{self.name}.attention",
            module=self.attention, modules=self.projections, **place,
        )  # fmt: skip
        yield from between
        name, modules = f"{self.name}.mlp", self.feeds
        yield from mlp(self.width, self.inner, self.layers, gated=self.gated, rows=rows, name=name, module="", modules=modules, **place)


def encoder(side: Side, rows: Quantity = ENCODED, of: Quantity = ENCODED_PAIRS) -> Iterator[Work]:
    """Yield the layers of an encoder: all tokens attend to all."""
    yield from side.works(rows, of, "encoder")


def decoder(side: Side, source_width: int, rows: Quantity = ENCODED, of: Quantity = CROSS_PAIRS) -> Iterator[Work]:
    """Yield the layers of a decoder: causal attention, then attention to the encoder, then the MLP.

    Keys and values of the latter are made for the encoder's tokens, queries and output for the decoder's.
    """
    to_encoder = cross_attention(
        side.width, side.heads, side.dim, side.layers, rows=TEXT, source=rows, of=of, source_width=source_width,
        source_stream="encoder", stack=side.stack, module=side.cross, modules=side.projections,
    )  # fmt: skip
    yield from side.works(TEXT, pairs(), "stream", to_encoder)


def sides(config: Config, base: str) -> tuple[Side, Side]:
    """Return encoder and decoder of a configuration in BART's words; `base` is where the model lies in one with a head."""
    width = config.integer("d_model")

    def side(name: str) -> Side:
        heads = config.integer(f"{name}_attention_heads")
        inner = config.integer(f"{name}_ffn_dim")
        dim = head_dim(config, width, heads, ())
        return Side(name, f"{base}{name}.layers", config.layers(f"{name}_layers"), width, heads, dim, inner)

    return side("encoder"), side("decoder")


@transformers_model(
    "models/bart and its copies; Lewis et al., arXiv:1910.13461", "bart", "mbart", "plbart", "pegasus",
    "marian", "blenderbot", "blenderbot-small", "m2m_100", "MarianMTModel", "MarianModel",
    *(f"{name}{end}" for name in GENERATORS for end in ("ForConditionalGeneration", "Model")),
    kind="encoder-decoder",
)  # fmt: skip
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


_SOURCE = in_transformers("models/t5, mt5 and umt5; Raffel et al., arXiv:1910.10683")


@model(
    *("t5", "T5ForConditionalGeneration", "T5Model", "T5WithLMHeadModel"),
    *("mt5", "MT5ForConditionalGeneration", "MT5Model", "umt5", "UMT5ForConditionalGeneration", "UMT5Model"),
    kind="encoder-decoder",
    source=_SOURCE,
)
def t5(config: Config) -> Iterator[Work]:
    """T5, Flan-T5, mT5 and UMT5: attention n heads of d_kv wide (not h / n), MLPs gated or not, cross-attention.

    Keys and values of the cross-attention are made for the encoder's tokens, queries and output for the decoder's. The
    relative positions are looked up. With a context the encoder's work is in the cache, and costs nothing.
    """
    first = _side(config, "encoder", config.layers("num_layers"))
    second = _side(config, "decoder", config.layers("num_decoder_layers", default=len(first.layers)))
    yield lookup("embedding", ENCODED, "shared", to="encoder")
    yield lookup("embedding", TEXT, "shared")
    yield from encoder(first)
    yield from decoder(second, first.width)
    if not config.architecture.endswith("5Model"):
        yield head(second.width, config.integer("vocab_size"))


@model("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel", kind="encoder", source=_SOURCE)
def t5_encoder(config: Config) -> Iterator[Work]:
    """The encoder of T5, mT5 or UMT5 alone, as diffusion models use it: 2TL(4h·n·d + g·hf) + 4ndL × T², g = 3 gated, else 2."""
    side = _side(config, "encoder", config.layers("num_layers"))
    yield embedding(module="shared")
    yield from side.works(TEXT, TEXT_PAIRS, "stream")


def _side(config: Config, name: str, layers: range) -> Side:
    gated = config.word("feed_forward_proj", default=_activation(config)).startswith("gated-")
    feed = "layer.1.DenseReluDense" if name == "encoder" else "layer.2.DenseReluDense"
    return Side(
        name, f"{name}.block", layers, config.integer("d_model"), config.integer("num_heads"), config.integer("d_kv", default=64),
        config.integer("d_ff"), gated, attention="layer.0.SelfAttention", cross="layer.1.EncDecAttention",
        projections=("q", "k", "v", "o"), feeds=(f"{feed}.wi_0", f"{feed}.wi_1" if gated else f"{feed}.wi", f"{feed}.wo"),
    )  # fmt: skip


def _activation(config: Config) -> str:
    """Return what the class takes when the configuration is silent: T5 is not gated, mT5 and UMT5 are."""
    kind = f"{config.values.get('model_type') or ''} {config.architecture}".casefold()
    return "gated-gelu" if "mt5" in kind else "relu"
