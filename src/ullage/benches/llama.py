"""A Llama-like network in plain PyTorch with random weights: one layer, and generation with a cache of keys and values.

Only functions on tensors: the same lines compute in the measured precision and, on weights made double, the reference.
Root-mean-square norms, rotary positions, causal attention by `scaled_dot_product_attention`, a SwiGLU feed-forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ullage.benches import products

Weights = dict[str, Any]
Linear = Callable[[Any, Any], Any]
EPSILON = 1e-5


@dataclass(frozen=True)
class NetworkShape:
    """The sizes of a network; a layer's alone where `vocabulary` is 0."""

    hidden: int
    feed_forward: int
    heads: int
    layers: int = 1
    vocabulary: int = 0

    @property
    def head(self) -> int:
        """Elements of one head."""
        return self.hidden // self.heads

    @property
    def layer_weights(self) -> int:
        """Weights of a layer's products: four of attention, three of the feed-forward.

        >>> NetworkShape(4096, 11008, 32).layer_weights
        202375168
        """
        return 4 * self.hidden**2 + 3 * self.hidden * self.feed_forward

    @property
    def weights(self) -> int:
        """Weights that one step of generation reads: all products and the head, but of the embedding only a row a sequence.

        >>> NetworkShape(4096, 11008, 32, 32, 32000).weights
        6607077376
        """
        return self.layers * self.layer_weights + self.vocabulary * self.hidden


def layer_weights(torch: Any, shape: NetworkShape, kind: Any) -> Weights:
    """Return one layer's weights, random, so scaled that what passes through keeps its magnitude."""
    sizes = {
        "query_key_value": (3 * shape.hidden, shape.hidden),
        "output": (shape.hidden, shape.hidden),
        "gate_up": (2 * shape.feed_forward, shape.hidden),
        "down": (shape.hidden, shape.feed_forward),
    }
    made = {name: products.matrix(torch, *size, kind).mul_(size[1] ** -0.5) for name, size in sizes.items()}
    norms = {name: torch.ones(shape.hidden, device=products.device(torch), dtype=kind) for name in ("attention_norm", "norm")}
    return {**made, **norms}


def double(weights: Weights) -> Weights:
    """Return a layer's weights in double precision."""
    return {name: value.double() for name, value in weights.items()}


def norm(torch: Any, values: Any, gain: Any) -> Any:
    """Return the values over their root mean square, times the gain."""
    return torch.nn.functional.rms_norm(values, (values.shape[-1],), gain, EPSILON)


def rotation(torch: Any, shape: NetworkShape, length: int, kind: Any) -> tuple[Any, Any]:
    """Return cosines and sines of the rotary positions, each length × head."""
    half = torch.arange(0, shape.head, 2, device=products.device(torch), dtype=torch.float64)
    angles = torch.outer(torch.arange(length, device=half.device, dtype=torch.float64), 10000.0 ** (-half / shape.head)).repeat(1, 2)
    return angles.cos().to(kind), angles.sin().to(kind)


def rotated(torch: Any, values: Any, turn: tuple[Any, Any]) -> Any:
    """Return queries or keys (… × length × head), turned by their positions."""
    left, right = values.chunk(2, dim=-1)
    return values * turn[0] + torch.cat([-right, left], dim=-1) * turn[1]


def split(values: Any, shape: NetworkShape) -> tuple[Any, Any, Any]:
    """Return queries, keys and values as batch × heads × length × head, from batch × length × 3 hidden."""
    parts = values.view(*values.shape[:2], 3, shape.heads, shape.head).permute(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


def attended(
    torch: Any, values: Any, weights: Weights, shape: NetworkShape, linear: Linear, turn: tuple[Any, Any] | None, cache: Cache | None
) -> Any:
    """Return what attention adds to `values` (batch × length × hidden); with a cache, of the one token that comes next."""
    query, key, value = split(linear(norm(torch, values, weights["attention_norm"]), weights["query_key_value"]), shape)
    if turn is not None:
        query, key = rotated(torch, query, turn), rotated(torch, key, turn)
    if cache is not None:
        key, value = cache.with_next(key, value)
    seen = {"is_causal": True} if cache is None else {"attn_mask": cache.mask}
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, **seen)
    return linear(mixed.transpose(1, 2).reshape(values.shape), weights["output"])


def fed_forward(torch: Any, values: Any, weights: Weights, linear: Linear) -> Any:
    """Return what the feed-forward adds to `values`."""
    gate, up = linear(norm(torch, values, weights["norm"]), weights["gate_up"]).chunk(2, dim=-1)
    return linear(torch.nn.functional.silu(gate) * up, weights["down"])


def layer(
    torch: Any,
    values: Any,
    weights: Weights,
    shape: NetworkShape,
    linear: Linear,
    turn: tuple[Any, Any] | None = None,
    cache: Cache | None = None,
) -> Any:
    """Return a layer's output for batch × length × hidden; `linear(values, weight)` is how it multiplies."""
    values = values + attended(torch, values, weights, shape, linear, turn, cache)
    return values + fed_forward(torch, values, weights, linear)


def multiplied(torch: Any, precision: str) -> Linear:
    """Return how layers multiply in a precision: any leading dimensions × inputs by outputs × inputs."""

    def run(values: Any, weight: Any) -> Any:
        flat = products.linear(torch, values.reshape(-1, values.shape[-1]), weight, precision)
        return flat.view(*values.shape[:-1], weight.shape[0])

    return run


@dataclass
class Cache:
    """Keys and values of a layer for all positions; `at` is the next one (on the device), `mask` allows those up to it."""

    keys: Any
    values: Any
    at: Any
    mask: Any

    def with_next(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Write the next position's key and value, and return all."""
        self.keys.index_copy_(2, self.at, key)
        self.values.index_copy_(2, self.at, value)
        return self.keys, self.values


@dataclass
class Network:
    """A network that generates: `step` feeds one token a sequence (in place) and makes the next; all its state is on the device."""

    torch: Any
    shape: NetworkShape
    batch: int
    length: int
    kind: Any
    linear: Linear
    layers: list[Weights] = field(init=False)

    def __post_init__(self) -> None:
        torch, shape, where = self.torch, self.shape, products.device(self.torch)
        self.layers = [layer_weights(torch, shape, self.kind) for _ in range(shape.layers)]
        self.embedding = products.matrix(torch, shape.vocabulary, shape.hidden, self.kind)
        self.head = products.matrix(torch, shape.vocabulary, shape.hidden, self.kind).mul_(shape.hidden**-0.5)
        self.gain = torch.ones(shape.hidden, device=where, dtype=self.kind)
        self.turn = rotation(torch, shape, self.length, self.kind)
        self.at = torch.zeros(1, device=where, dtype=torch.int64)
        self.positions = torch.arange(self.length, device=where)
        self.tokens = torch.zeros(self.batch, 1, device=where, dtype=torch.int64)
        stored = (self.batch, shape.heads, self.length, shape.head)
        self.stores = [[torch.zeros(stored, device=where, dtype=self.kind) for _ in range(2)] for _ in range(shape.layers)]

    def step(self) -> Any:
        """Generate one token a sequence, and return the logits."""
        torch = self.torch
        turn = self.turn[0].index_select(0, self.at), self.turn[1].index_select(0, self.at)
        mask = (self.positions <= self.at)[None, None, None, :]
        values = self.embedding[self.tokens]
        for weights, (keys, stored) in zip(self.layers, self.stores, strict=True):
            values = layer(torch, values, weights, self.shape, self.linear, turn, Cache(keys, stored, self.at, mask))
        logits = self.linear(norm(torch, values[:, -1], self.gain), self.head)
        self.tokens.copy_(logits.argmax(-1, keepdim=True))
        self.at.add_(1)
        return logits

    def begin(self, token: Any = None, at: int = 0) -> None:
        """Go to a position, and feed this token (batch × 1) next."""
        self.at.fill_(at)
        if token is not None:
            self.tokens.copy_(token)

    def reference(self, tokens: Any) -> Any:
        """Return the logits after the last of `tokens` (sequences × length), without a cache, in double precision."""
        torch = self.torch
        turn = rotation(torch, self.shape, tokens.shape[1], torch.float64)
        values = self.embedding[tokens].double()
        for weights in self._doubles():
            values = layer(torch, values, weights, self.shape, torch.nn.functional.linear, turn)
        return norm(torch, values[:, -1], self.gain.double()) @ self.head.double().t()

    def _doubles(self) -> Iterator[Weights]:
        yield from (double(weights) for weights in self.layers)


def distance(found: Any, truth: Any) -> float:
    """Return how far a tensor is from the truth: the norm of their difference over the truth's."""
    return float((found.double() - truth).norm() / truth.norm())
