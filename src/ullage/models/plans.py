"""How the types of dense decoders that call their widths alike differ: as data, one row a type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, Layout, Shape, dense, documented, family, head_dim, key_heads
from ullage.models.model import names as named
from ullage.models.model import unknown
from ullage.models.sample import Quantity
from ullage.models.work import Work

SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
FULL, SLIDING = "full_attention", "sliding_attention"
KINDS = frozenset({FULL, SLIDING})


@dataclass(frozen=True)
class Plan:
    """How one type departs from Llama.

    `fields` are what its configuration class documents for fields that files leave out. `sizes` are the class's own widths
    (in the order of SIZES): they hold only in a section of a larger file (`text_config`), which lists what differs from them.
    `window` is "none", "all" (one for all layers) or "typed" (in the layers whose type says so; by default not in every n-th
    layer, the last of n or the `first`).
    """

    stem: str
    kind: str
    heads: tuple[str, ...] = (LM, BARE)
    fields: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, int, int, int, int] | None = None
    gated: bool = True
    window: str = "none"
    every: int = 0
    first: bool = False
    layout: Layout = field(default_factory=Layout)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that configs use for this type."""
        return family(self.stem, *self.heads, kind=self.kind)


def names(plans: Iterable[Plan]) -> tuple[str, ...]:
    """Return the names of all plans, for registering."""
    return tuple(name for plan in plans for name in plan.names)


def chosen(config: Config, plans: Sequence[Plan]) -> Plan:
    """Return the plan of a configuration: by the architecture's name, else by the names that it gives itself.

    Raises UllageError where no plan has such a name: none is taken for granted.
    """
    asked = [name for name in (config.architecture, *named(config)) if name]
    for name in asked:
        for plan in plans:
            if name in plan.names:
                return plan
    raise unknown(asked[-1], config) if asked else config.missing("model_type")


def planned(config: Config, plan: Plan, stack: str | None = None) -> Iterator[Work]:
    """Yield the work of a decoder of this plan; a `text_config` is given as its section, and `stack` is the path of its layers there."""
    layout = plan.layout.under(stack) if stack else plan.layout
    yield from dense(config, shape(config, plan), layout)


def shape(config: Config, plan: Plan) -> Shape:
    """Return the widths and windows of a configuration, with the defaults of its class."""
    config = documented(config, **plan.fields)
    if config.path and plan.sizes:
        config = documented(config, **dict(zip(SIZES, plan.sizes, strict=True)))
    width, heads, layers = config.integer("hidden_size"), config.integer("num_attention_heads"), config.layers()
    return Shape(
        width=width,
        heads=heads,
        key_heads=key_heads(config, heads),
        dim=head_dim(config, width, heads),
        inner=config.integer("intermediate_size"),
        vocabulary=config.integer("vocab_size"),
        layers=layers,
        gated=plan.gated,
        spans=_spans(config, plan, layers),
    )


def _spans(config: Config, plan: Plan, layers: range) -> Sequence[tuple[int | None, Sequence[int]]]:
    if plan.window == "none":
        return ()
    if plan.window == "all":
        return windows(config.replaced(layer_types=None), layers)
    return windows(patterned(config, layers, plan.every, plan.first), layers)


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
    return config.replaced(layer_types=[FULL if f else SLIDING for f in full])


def windows(config: Config, layers: range) -> list[tuple[int | None, list[int]]]:
    """Return the layers by their sliding window (None: all that came before).

    `layer_types` names them where it is there; else a `sliding_window` holds for all layers (Mistral), unless
    `use_sliding_window` says no (Qwen, whose first `max_window_layers` are full when it says yes).
    """
    window = config.optional("sliding_window") if config.values.get("sliding_window") else None
    kinds = config.words("layer_types", len(layers), KINDS)
    if window is None or not config.flag("use_sliding_window", True):
        sliding: set[int] = set()
    elif kinds:
        sliding = {i for i in layers if kinds[i] == SLIDING}
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


def exchanged(works: Iterable[Work], quantities: Mapping[Quantity, Quantity]) -> Iterator[Work]:
    """Yield the works with quantities exchanged: attention that sees both sides instead of what came before."""
    for work in works:
        yield replace(work, quantity=quantities.get(work.quantity, work.quantity))
