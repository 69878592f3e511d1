"""The plan of a decoder with routed experts: which layers are dense, what a token's experts cost, what the layers share.

The families of such models build on it: each says how it chooses layers and where its weights lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ullage.models.blocks import embedding, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import bare, head_dim, key_heads, output
from ullage.models.sample import LOGITS, TEXT, pairs
from ullage.models.work import Work, matmul

STACK = "model.layers"
APART = ("gate_proj", "up_proj", "down_proj")
FUSED = ("gate_up_proj", "down_proj")
Bands = Sequence[tuple[int | None, Sequence[int]]]


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
        yield from gated(
            "moe.experts", width, self.inner, layers, stack=stack, module=self.experts, modules=self.modules, times=self.active
        )
        if not self.shared_first:
            yield from together
        if self.shared_gate:
            yield matmul("moe.shared_gate", TEXT, width, 1, layers, stack=stack, module=self.shared_gate, to=None)

    def _shared(self, width: int, layers: Sequence[int], stack: str) -> Iterator[Work]:
        if self.shared:
            yield from gated("moe.shared", width, self.shared, layers, stack=stack, module=self.shared_module, modules=self.shared_modules)


def gated(
    name: str, width: int, inner: int, layers: Sequence[int], *, module: str, modules: tuple[str, ...], stack: str = STACK, times: int = 1
) -> Iterator[Work]:
    """Yield a gated feed-forward block, `times` a token: three products, or two where gate and up lie in one matrix."""
    if len(modules) == 3:
        gate, up, down = modules
        yield from mlp(width, inner, layers, gated=True, name=name, stack=stack, module=module, modules=(gate, up, down), times=times)
        return
    both, down = (f"{module}.{m}" for m in modules)
    yield matmul(f"{name}.gate_up", TEXT, width, 2 * inner, layers, stack=stack, module=both, times=times, to=None)
    yield matmul(f"{name}.down", TEXT, inner, width, layers, stack=stack, module=down, times=times, reads=(f"{name}.gate_up",))


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


def grouped_attention(config: Config, bands: Bands) -> Iterator[Work]:
    """Yield grouped-query attention as the usual fields describe it, band by band of layers with one window."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    groups, dim = key_heads(config, heads), head_dim(config, width, heads)
    for window, members in bands:
        yield from self_attention(width, heads, groups, dim, members, of=pairs(window))


def sparse_decoder(
    config: Config, attention: Iterable[Work], dense: Sequence[int], experts: Iterable[Work], inner: int | None = None
) -> Iterator[Work]:
    """Yield a whole decoder: embedding, attention, the MLP of the dense layers (`inner` wide), the experts of the others, the head."""
    width = config.integer("hidden_size")
    works = [*attention]
    if dense:
        works += mlp(width, inner or config.integer("intermediate_size"), dense, gated=True)
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
