"""What a forward pass asks for, piece by piece: products of matrices, attention, convolutions, as FLOPs per unit of a quantity.

A multiply-add is 2 FLOPs. Look-ups, norms, activations, rotary embeddings and biases count 0, as in every convention of the
field (PaLM, appendix B; Megatron). A family yields `Work`; the ledger sums it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ullage.models.sample import Quantity


@dataclass(frozen=True)
class Work:
    """One piece of the forward pass, done `quantity` times in each of `layers`.

    `name` is "group.what" in the field's terms (`attention.q`, `mlp.down`, `moe.router`, `head`); `flops` are per unit of the
    quantity and layer. `module` is the path below the layer under which the weight is found in the checkpoint; `stack` the
    path of the layers, "" outside of any. `shape` is (inner, columns) of a weight, None for a product of two activations.
    `reads` are the inputs, by name of the work or stream that made them; "data" never needs a gradient. `to` is the stream
    into which the result flows, if any. Without `gradient` nothing flows back (an output that no loss sees, a top-k).
    `least` are the FLOPs that the mathematics needs, where the usual algorithm spends more (chunked scans).
    """

    name: str
    quantity: Quantity
    flops: int
    layers: Sequence[int] = (0,)
    stack: str = ""
    module: str = ""
    shape: tuple[int, int] | None = None
    reads: tuple[str, ...] = ("stream",)
    to: str | None = None
    gradient: bool = True
    least: int | None = None

    @property
    def group(self) -> str:
        """The part of the name before its last dot: what the ledger is grouped by; adapters of LoRA are "attention.lora"."""
        group, _, what = self.name.rpartition(".")
        if what in ("lora_a", "lora_b"):
            group = f"{group.rpartition('.')[0] or group}.lora"
        return group or self.name


def matmul(
    name: str,
    rows: Quantity,
    inner: int,
    columns: int,
    layers: Sequence[int] = (0,),
    *,
    stack: str = "",
    module: str = "",
    times: int = 1,
    reads: tuple[str, ...] = ("stream",),
    to: str | None = "stream",
    gradient: bool = True,
) -> Work:
    """Return the work of rows × (inner × columns), a product with a weight: 2 × inner × columns FLOPs a row, `times` a row.

    >>> from ullage.models.sample import TEXT
    >>> matmul("mlp.up", TEXT, 4096, 14336).flops
    117440512
    """
    flops = 2 * inner * columns * times
    return Work(name, rows, flops, layers, stack, module, (inner, columns), reads, to, gradient)


def contraction(
    name: str,
    of: Quantity,
    flops: int,
    layers: Sequence[int] = (0,),
    *,
    stack: str = "",
    reads: tuple[str, ...] = ("stream",),
    to: str | None = None,
    gradient: bool = True,
    least: int | None = None,
) -> Work:
    """Return the work of a product of activations, without a weight: a step of a scan, an interaction, a chunk of linear attention.

    Backward is one such product for each of `reads` that needs a gradient; a contraction has two inputs, so name two.
    """
    return Work(name, of, flops, layers, stack, "", None, reads, to, gradient, least)


def attention(
    of: Quantity,
    heads: int,
    dim: int,
    layers: Sequence[int] = (0,),
    *,
    value_dim: int | None = None,
    name: str = "attention",
    stack: str = "",
    gradient: bool = True,
    inputs: tuple[str, str, str] | None = None,
) -> Iterator[Work]:
    """Yield the two products of attention, queries with keys and weights with values, over query-key pairs.

    2 × heads × dim FLOPs a pair each; `inputs` are the works that made queries, keys and values ("attention.q", … by default).

    >>> from ullage.models.sample import pairs
    >>> [(w.name, w.flops) for w in attention(pairs(), heads=32, dim=128)]
    [('attention.scores', 8192), ('attention.values', 8192)]
    """
    q, k, v = inputs or (f"{name}.q", f"{name}.k", f"{name}.v")
    yield contraction(f"{name}.scores", of, 2 * heads * dim, layers, stack=stack, reads=(q, k), gradient=gradient)
    width = 2 * heads * (dim if value_dim is None else value_dim)
    yield contraction(f"{name}.values", of, width, layers, stack=stack, reads=(f"{name}.scores", v), gradient=gradient)


def convolution(
    name: str,
    positions: Quantity,
    kernel: int,
    inputs: int,
    outputs: int,
    layers: Sequence[int] = (0,),
    *,
    groups: int = 1,
    stack: str = "",
    module: str = "",
    reads: tuple[str, ...] = ("stream",),
    to: str | None = "stream",
) -> Work:
    """Return the work of a convolution at each output position: 2 × kernel × inputs/groups × outputs FLOPs.

    `kernel` is the number of taps (the product of its sides); `positions` the output positions of a sample.

    >>> from ullage.models.sample import TEXT
    >>> convolution("mamba.conv", TEXT, kernel=4, inputs=256, outputs=256, groups=256).flops
    2048
    """
    return Work(
        name, positions, 2 * kernel * (inputs // groups) * outputs, layers, stack, module, (kernel * inputs // groups, outputs),
        reads, to,
    )  # fmt: skip


def lookup(name: str, rows: Quantity, module: str, stack: str = "", to: str = "stream") -> Work:
    """Return an embedding table: no FLOPs, but trainable, so that what reads its rows needs a gradient."""
    return Work(name, rows, 0, (0,), stack, module, None, ("data",), to)
