"""Encoders of text after BERT: BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, DistilBERT, with their heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ullage.models.blocks import embedding, self_attention
from ullage.models.config import Config
from ullage.models.decoders import head_dim
from ullage.models.model import model
from ullage.models.planes import labels
from ullage.models.sample import ONCE, TEXT, square
from ullage.models.work import Work, matmul

TEXT_PAIRS = square("text pairs, both ways", lambda s: s.text)
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


@dataclass(frozen=True)
class _Paths:
    """Where the weights of a family lie: the model in a model with a head, its layers, and the modules of a layer."""

    base: str
    stack: str = "encoder.layer"
    attention: tuple[str, str, str, str] = ("self.query", "self.key", "self.value", "output.dense")
    up: str = "intermediate.dense"
    down: str = "output.dense"


_BERT, _ROBERTA, _ELECTRA = _Paths("bert"), _Paths("roberta"), _Paths("electra")
_DISTILLED = _Paths("distilbert", "transformer.layer", ("q_lin", "k_lin", "v_lin", "out_lin"), "ffn.lin1", "ffn.lin2")


@model(
    *("bert", "BertForPreTraining", *(f"Bert{name}" for name in HEADS)),
    kind="encoder",
    source="transformers 5.23, models/bert; Devlin et al., arXiv:1810.04805; verified to the integer against traces",
)
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


@model(
    *("roberta", "xlm-roberta", "camembert"),
    *(f"{family}{name}" for family in ("Roberta", "XLMRoberta", "Camembert") for name in HEADS),
    kind="encoder",
    source="transformers 5.23, models/roberta and its copies; Liu et al., arXiv:1907.11692; verified to the integer against traces",
)
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


@model(
    *("electra", "ElectraForPreTraining", *(f"Electra{name}" for name in HEADS)),
    kind="encoder",
    source="transformers 5.23, models/electra; Clark et al., arXiv:2003.10555; verified to the integer against traces",
)
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


@model(
    *("distilbert", *(f"DistilBert{name}" for name in HEADS)),
    kind="encoder",
    source="transformers 5.23, models/distilbert; Sanh et al., arXiv:1910.01108; verified to the integer against traces",
)
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
    yield matmul("mlp.up", TEXT, width, inner, layers, stack=stack, module=paths.up, to=None)
    yield matmul("mlp.down", TEXT, inner, width, layers, stack=stack, module=paths.down, reads=("mlp.up",))


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
