"""What trainers' counters read from a configuration, and the sums over a step's sequences that they multiply it with."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ullage.errors import UllageError, harmless
from ullage.models.config import Config
from ullage.models.conventions.convention import Row
from ullage.models.formula import Formula
from ullage.models.model import Model
from ullage.models.step import Step


@dataclass(frozen=True)
class Outline:
    """A decoder as counters see it; `head_dim` is the field of that name, or the width over the heads."""

    config: Config
    width: int
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    vocabulary: int

    def projections(self, tokens: int, layers: int | None = None, *, gated: bool = False) -> Iterator[Row]:
        """Yield queries, keys, values and output; `gated` queries bring a gate of their own width."""
        one = 2 * tokens * self.width * self.head_dim * (self.layers if layers is None else layers)
        yield "attention.q", one * self.heads * (2 if gated else 1)
        yield "attention.k", one * self.key_heads
        yield "attention.v", one * self.key_heads
        yield "attention.out", one * self.heads

    def products(self, pairs: int) -> Iterator[Row]:
        """Yield queries with keys and weights with values over (query, key) pairs of all layers."""
        return products(self.heads, self.head_dim, self.head_dim, pairs)

    def head(self, tokens: int) -> Row:
        """Return the LM head's row."""
        return "head", 2 * tokens * self.width * self.vocabulary

    def field(self, *names: str, default: int | None = None) -> int:
        """Return a field that is a size; 0 is allowed, and what is missing is an error unless it has a default."""
        if default is None:
            return self.config.integer(*names, least=0)
        return self.config.integer(*names, default=default, least=0)


def outline(config: Config, *, head_dim: bool = True) -> Outline:
    """Return a decoder's outline; without `head_dim` that field is passed over, as some counters do."""
    width = config.integer("hidden_size", "n_embd", "d_model")
    heads = config.integer("num_attention_heads", "n_head", "num_heads")
    wide = config.integer("head_dim", "kv_channels", default=width // heads) if head_dim else width // heads
    layers = config.integer("num_hidden_layers", "n_layer", "num_layers", least=0)
    return Outline(
        config, width, layers, heads, config.integer("num_key_value_heads", default=heads), wide, config.integer("vocab_size", least=0)
    )


def products(heads: int, dim: int, value_dim: int, pairs: int) -> Iterator[Row]:
    """Yield the two products of attention: 2 × heads × width FLOPs a pair each."""
    yield "attention.scores", 2 * heads * dim * pairs
    yield "attention.values", 2 * heads * value_dim * pairs


def halved(heads: int, dim: int, value_dim: int, squares: int) -> Iterator[Row]:
    """Yield the two products over half of `squares`: causal attention as most trainers take it, s²/2 for s(s+1)/2."""
    yield "attention.scores", heads * dim * squares
    yield "attention.values", heads * value_dim * squares


def feed_forward(group: str, rows: int, width: int, inner: int, *, gated: bool = True) -> Iterator[Row]:
    """Yield an MLP's products: two, or three with a gate."""
    for part in ("gate", "up", "down") if gated else ("up", "down"):
        yield f"{group}.{part}", 2 * rows * width * inner


BY_FIELDS = ("verl", "automodel", "nemo")  # conventions that read fields alone, and so need no formula of ours


def bare(config: Config) -> Formula:
    """Return a formula without work, for a convention of `BY_FIELDS` and an architecture that has no family here."""
    said = config.values.get("model_type")
    name = said if isinstance(said, str) else "unknown"
    model = Model("bare", (), "decoder", True, ("seq",), "fields of the configuration", lambda _: iter(()))
    return Formula(model, name, config, ())


def text(config: Config) -> Config:
    """Return the section of the text model, or the configuration where it has none."""
    return config.section("text_config") if config.has("text_config") else config


def tokens(step: Step) -> int:
    """Return Σ s over a step's sequences."""
    return step.repeats * step.tokens


def squares(step: Step) -> int:
    """Return Σ s² over a step's sequences."""
    return step.repeats * sum(count * sample.text**2 for sample, count in step.samples)


def lengths(step: Step) -> Iterator[tuple[int, int]]:
    """Yield (length, how many) of a step's sequences."""
    return ((sample.text, count * step.repeats) for sample, count in step.samples)


def kind(formula: Formula, known: Collection[str], framework: str, does: str) -> str:
    """Return the `model_type` by which a framework chooses its formula.

    A configuration without it is known by its family's names. Raises UllageError where the framework has no formula: `does`
    is what it prints then.
    """
    said = formula.config.values.get("model_type")
    asked = [said] if isinstance(said, str) else [formula.name, *formula.model.names]
    for name in asked:
        if name in known:
            return name
    raise UllageError(
        f"{framework} has no count for '{harmless(str(asked[0]), 80)}': it {does}", f"it counts {', '.join(sorted(known))}; leave --as out"
    )
