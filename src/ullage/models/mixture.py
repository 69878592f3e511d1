"""Decoders with routed experts: what a token's experts cost, which layers are dense, and how a type departs from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ullage.models.blocks import embedding, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, bare, family, head_dim, key_heads, output
from ullage.models.sample import LOGITS, TEXT, Quantity, pairs
from ullage.models.work import Work, attention, matmul

STACK = "model.layers"
APART = ("gate_proj", "up_proj", "down_proj")
FUSED = ("gate_up_proj", "down_proj")
Bands = Sequence[tuple[int | None, Sequence[int]]]  # layers by their window (None: all that came before)
Parts = tuple[Sequence[int], Sequence[int]]  # the dense layers and the sparse ones


@dataclass(frozen=True)
class Mixture:
    """A feed-forward block of `routed` experts of width `inner`, of which a token takes `active`; shared ones are `shared` wide together.

    `router`, `experts` and `shared_module` are paths below a layer, `modules` the weights of an expert: gate, up and down, or
    two where gate and up lie in one matrix. `shared_gate` is the path of the shared expert's own gate, a product with one
    column. `shared_first` says that the shared expert runs before the routed ones: recomputation stops before a layer's last
    product, so that the order counts.
    """

    inner: int
    routed: int
    active: int
    shared: int = 0
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    modules: tuple[str, ...] = APART
    shared_module: str = "mlp.shared_experts"
    shared_modules: tuple[str, ...] = APART
    shared_gate: str = ""
    shared_first: bool = False

    def works(self, width: int, layers: Sequence[int], stack: str = STACK) -> Iterator[Work]:
        """Yield the router, the experts of each token and the shared one, in the order of execution; nothing for no layers."""
        if not layers:
            return
        together = list(self._shared(width, layers, stack))
        if self.shared_first:
            yield from together
        yield matmul("moe.router", TEXT, width, self.routed, layers, stack=stack, module=self.router, to=None)
        yield from mlp(
            *(width, self.inner, layers), gated=True, name="moe.experts", stack=stack, module=self.experts, modules=self.modules,
            times=self.active,
        )  # fmt: skip
        if not self.shared_first:
            yield from together
        if self.shared_gate:
            yield matmul("moe.shared_gate", TEXT, width, 1, layers, stack=stack, module=self.shared_gate, to=None)

    def _shared(self, width: int, layers: Sequence[int], stack: str) -> Iterator[Work]:
        if self.shared:
            module, modules = self.shared_module, self.shared_modules
            yield from mlp(width, self.shared, layers, gated=True, name="moe.shared", stack=stack, module=module, modules=modules)


def as_wide(*names: str, **bounds: int) -> Callable[[Config, int], int]:
    """Return how wide the shared experts are together where a field says it."""
    return lambda config, _: config.integer(*names, **bounds)


def as_many(*names: str, **bounds: int) -> Callable[[Config, int], int]:
    """Return how wide the shared experts are together where a field counts them, each as wide as a routed one."""
    return lambda config, inner: inner * config.integer(*names, least=0, **bounds)


def sliding(slides: Callable[[int], bool], window: int | None = None) -> Callable[[Config, Sequence[int]], Bands]:
    """Return how layers come by their windows: see `banded`."""
    return lambda config, layers: banded(config, layers, slides, window)


def leading_by(dense: int) -> Callable[[Config, Sequence[int]], Parts]:
    """Return how dense layers lead, `dense` of them where no field says: see `leading`."""
    return lambda config, layers: leading(config, layers, dense)


def grouped_attention(config: Config, bands: Bands) -> Iterator[Work]:
    """Yield grouped-query attention as the usual fields describe it, band by band of layers with one window."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    groups, dim = key_heads(config, heads), head_dim(config, width, heads)
    for window, members in bands:
        yield from self_attention(width, heads, groups, dim, members, of=pairs(window))


@dataclass(frozen=True)
class SparsePlan:
    """How one type of decoder with routed experts departs from the usual: grouped-query attention, experts in every layer.

    `inner`, `routed` and `active` are the fields of an expert's width, of how many there are and how many a token takes, who
    must be `draws` where the router is built so. `shared` is the width of all shared experts together, `layers` tells the
    dense ones from the sparse, `windows` the layers by their window, of which `attention` yields the work. `paths` are those
    of Mixture; a dense layer's MLP lies at `dense_module`. With `predicts` layers for multi-token prediction can be counted.
    """

    stem: str
    kind: str
    heads: tuple[str, ...] = (LM, BARE)
    inner: str = "moe_intermediate_size"
    routed: tuple[str, ...] = ("num_experts", "num_local_experts")
    active: tuple[str, ...] = ("num_experts_per_tok",)
    draws: int | None = None
    shared: Callable[[Config, int], int] = lambda *_: 0
    layers: Callable[[Config, Sequence[int]], Parts] = lambda _, layers: ([], layers)
    windows: Callable[[Config, Sequence[int]], Bands] = lambda _, layers: [(None, layers)]
    attention: Callable[[Config, Bands], Iterable[Work]] = grouped_attention
    paths: Mapping[str, Any] = field(default_factory=dict)
    dense_width: tuple[str, ...] = ("intermediate_size",)
    dense_module: str = "mlp"
    predicts: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that configs use for this type."""
        return (*family(self.stem, *self.heads, kind=self.kind), *self.aliases)

    def works(self, config: Config) -> Iterator[Work]:
        """Yield a whole decoder, and layers for multi-token prediction where they are asked for."""
        layers, width, experts = config.layers(), config.integer("hidden_size"), self.experts(config)
        dense, sparse = self.layers(config, layers)
        attending = self.attention(config, self.windows(config, layers))
        yield from sparse_decoder(config, attending, dense, experts.works(width, sparse), self.dense_width, self.dense_module)
        if self.predicts:
            yield from predictors(config, layers, lambda ahead: [*self.attention(config, [(None, ahead)]), *experts.works(width, ahead)])

    def experts(self, config: Config) -> Mixture:
        """Return the routed and shared experts of a layer."""
        inner = config.integer(self.inner)
        routed, active = choice(config, self.routed, self.active)
        if self.draws not in (None, active):
            raise config.error(self.active, f"is {active:,}, and must be {self.draws}: this router draws two experts")
        return Mixture(inner, routed, active, shared=self.shared(config, inner), **self.paths)


def choice(config: Config, routed: Sequence[str], active: Sequence[str]) -> tuple[int, int]:
    """Return how many experts there are and how many a token takes, never more than there are."""
    count = config.integer(*routed)
    return count, config.integer(*active, most=count)


def leading(config: Config, layers: Sequence[int], dense: int | None) -> tuple[list[int], list[int]]:
    """Return the dense and the sparse layers: as `mlp_layer_types` names them, else the first ones are dense.

    How many is `first_k_dense_replace`, or `dense` (a documented default of the class) where the field is missing.
    """
    kinds = config.words("mlp_layer_types", len(layers), {"dense", "sparse"})
    if kinds:
        return parted(layers, lambda i: kinds[i] == "dense")
    first = config.integer("first_k_dense_replace", default=dense, least=0)
    return parted(layers, lambda i: i < first)


def parted(layers: Iterable[int], chosen: Callable[[int], bool]) -> tuple[list[int], list[int]]:
    """Return the chosen layers and the others.

    >>> parted(range(5), lambda i: i < 2)
    ([0, 1], [2, 3, 4])
    """
    members = list(layers)
    return [i for i in members if chosen(i)], [i for i in members if not chosen(i)]


def banded(config: Config, layers: Sequence[int], slides: Callable[[int], bool], window: int | None = None) -> Bands:
    """Return the layers by their window: `layer_types` says which slide where it is there, else `slides` does.

    `window` is the class's documented default for a missing `sliding_window`; null and 0 say that there is none.
    """
    if "sliding_window" in config.values:
        window = config.optional("sliding_window") if config.values["sliding_window"] else None
    if window is None:
        return [(None, layers)]
    kinds = config.words("layer_types", len(layers), {"full_attention", "sliding_attention"})
    short, full = parted(layers, (lambda i: kinds[i] == "sliding_attention") if kinds else slides)
    return [(w, members) for w, members in ((None, full), (window, short)) if members]


def stepped(config: Config, layers: Sequence[int], only: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """Return the dense and the sparse layers: every `decoder_sparse_step`-th is sparse, unless `mlp_only_layers` (or `only`) names it."""
    named, step = config.integers("mlp_only_layers"), config.integer("decoder_sparse_step", default=1)
    dense = set(only if named is None else named)
    return parted(layers, lambda i: i in dense or (i + 1) % step != 0)


def latent_attention(config: Config, layers: Sequence[int], of: Quantity | None = None) -> Iterator[Work]:
    """Yield multi-head latent attention: queries, keys and values expanded from narrow latents, over causal pairs or `of`."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    plain, rotated = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    values, rank = config.integer("v_head_dim"), config.integer("kv_lora_rank")
    if "q_lora_rank" not in config.values:  # null says that queries have no latent; absence says nothing
        raise config.missing("q_lora_rank")
    narrow, wide = config.optional("q_lora_rank"), heads * (plain + rotated)
    if narrow is None:
        query = "attention.q"
        yield matmul(query, TEXT, width, wide, layers, stack=STACK, module="self_attn.q_proj", to=None)
    else:
        query = "attention.q_up"
        yield matmul("attention.q_down", TEXT, width, narrow, layers, stack=STACK, module="self_attn.q_a_proj", to=None)
        reads = ("attention.q_down",)
        yield matmul(query, TEXT, narrow, wide, layers, stack=STACK, module="self_attn.q_b_proj", reads=reads, to=None)
    down, up = "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"
    yield matmul("attention.kv_down", TEXT, width, rank + rotated, layers, stack=STACK, module=down, to=None)
    reads, columns = ("attention.kv_down",), heads * (plain + values)
    yield matmul("attention.kv_up", TEXT, rank, columns, layers, stack=STACK, module=up, reads=reads, to=None)
    inputs = (query, "attention.kv_up", "attention.kv_up")
    yield from attention(of or pairs(), heads, plain + rotated, layers, value_dim=values, stack=STACK, inputs=inputs)
    out = "self_attn.o_proj"
    yield matmul("attention.out", TEXT, heads * values, width, layers, stack=STACK, module=out, reads=("attention.values",))


def sparse_decoder(
    config: Config,
    attending: Iterable[Work],
    dense: Sequence[int],
    experts: Iterable[Work],
    inner: tuple[str, ...] = ("intermediate_size",),
    module: str = "mlp",
) -> Iterator[Work]:
    """Yield a whole decoder: embedding, attention, the MLP of the dense layers (`inner` wide), the experts of the others, the head."""
    width = config.integer("hidden_size")
    works = [*attending]
    if dense:
        works += mlp(width, config.integer(*inner), dense, gated=True, module=module)
    yield from whole(config, width, [*works, *experts])


def whole(config: Config, width: int, layers: Iterable[Work], embedded: str = "model.embed_tokens") -> Iterator[Work]:
    """Yield the works of the layers between the embedding and the head that the architecture's name asks for.

    Paths are those of its checkpoint: a bare model lacks the prefix of the one with a head.
    """

    def placed(path: str) -> str:
        return path.partition(".")[2] if bare(config) else path

    yield embedding(module=placed(embedded))
    for work in layers:
        yield replace(work, stack=placed(work.stack))
    yield from output(config, width, config.integer("vocab_size"))


def predictors(config: Config, layers: range, layer: Callable[[range], Iterable[Work]]) -> Iterator[Work]:
    """Yield multi-token prediction, when `count_mtp` asks for it: one more layer, a projection and logits for each token ahead.

    The modules lie behind the last layer in the checkpoint. `layer` gives the works of such layers. All tokens are counted,
    as if each had a token to predict; the last ones of a sample, one per module, have none.
    """
    count = config.integer("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0, most=64)
    if not count or not config.flag("count_mtp") or bare(config):
        return
    width = config.integer("hidden_size")
    ahead = range(len(layers), len(layers) + count)
    yield matmul("mtp.proj", TEXT, 2 * width, width, ahead, stack=STACK, module="eh_proj", reads=("stream", "embedding"))
    for work in layer(ahead):
        reads = tuple(name if name == "stream" else f"mtp.{name}" for name in work.reads)
        yield replace(work, name=f"mtp.{work.name}", reads=reads)
    yield matmul("mtp.head", LOGITS, width, config.integer("vocab_size"), ahead, stack=STACK, module="shared_head.head", to=None)
