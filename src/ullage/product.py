"""What an operator asked for, as it counts: the word that an interval carries for it. Products of matrices, attention, bytes to move."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST = 2**40  # of a dimension; a larger one is no tensor's

# What stands in a product's place where no single one was asked for, or nobody can tell which.
GROUPED = "grouped"  # many products of different sizes in one kernel (a mixture's experts)
CONVOLUTION = "convolution"  # as an implicit product, whose sizes are the library's own
GRAPH = "graph"  # launched by a graph, which has no operators
EARLIER = "earlier"  # its launch is not in the recording
REASONS = (GROUPED, CONVOLUTION, GRAPH, EARLIER)


@dataclass(frozen=True)
class Product:
    """`batch` products of m × k by k × n elements, of one `precision` (a name of `ullage.gpus.precision` or "fp32", "" where not told)."""

    batch: int
    m: int
    n: int
    k: int
    precision: str = ""

    @property
    def word(self) -> str:
        """The product as one word of a table.

        >>> Product(1, 8944, 2816, 1024, "bf16").word
        '1x8944x2816x1024 bf16'
        """
        return f"{self.batch}x{self.m}x{self.n}x{self.k} {self.precision}".strip()

    @property
    def flops(self) -> int:
        """What it needs: 2 × batch × m × n × k.

        >>> Product(3, 2, 5, 7).flops
        420
        """
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def transposed(self) -> Product:
        """The same product as a column-major library counts a row-major one: m and n change places."""
        return Product(self.batch, self.n, self.m, self.k, self.precision)


def product(word: str) -> Product | None:
    """Return the product that a word says, None for any other text.

    >>> product("1x8944x2816x1024 bf16") == Product(1, 8944, 2816, 1024, "bf16"), product("0x1x1x1"), product("gemm")
    (True, None, None)
    """
    sizes, _, precision = word.partition(" ")
    try:
        batch, m, n, k = (int(size) for size in sizes.split("x"))
    except ValueError:
        return None
    return Product(batch, m, n, k, precision) if all(0 < size < LARGEST for size in (batch, m, n, k)) else None


@dataclass(frozen=True)
class Attention:
    """Attention of `queries` to `keys` in `heads` of `dim` numbers, of which `kv_heads` have keys and values (`value_dim` wide) of their
    own; `causal`: each query attends to those up to its own place. `backward` are its gradients, for which kernels compute the scores
    again. `precision` is "" where it is not told.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    dim: int
    value_dim: int
    causal: bool = False
    backward: bool = False
    precision: str = ""

    @property
    def word(self) -> str:
        """The attention as one word of a table.

        >>> Attention(8, 16, 4, 4096, 4096, 128, 128, True, False, "bf16").word
        'attention 8x16x4x4096x4096x128x128 causal bf16'
        """
        sizes = (self.batch, self.heads, self.kv_heads, self.queries, self.keys, self.dim, self.value_dim)
        flags = [word for word, is_so in (("causal", self.causal), ("backward", self.backward)) if is_so]
        return " ".join(["attention", "x".join(str(size) for size in sizes), *flags, self.precision]).strip()

    @property
    def flops(self) -> int:
        """What is executed: 2 × batch × heads × pairs × (dim + value_dim), and for the gradients five products instead of two.

        Of a causal one the pairs are s (s + 1) / 2; keys before the first query are attended to by all.

        >>> Attention(1, 1, 1, 4, 4, 8, 8).flops, Attention(1, 1, 1, 4, 4, 8, 8, causal=True).flops
        (512, 320)
        >>> Attention(1, 1, 1, 4, 4, 8, 8, backward=True).flops
        1280
        """
        pairs = self.queries * self.keys - (self.queries * (self.queries - 1) // 2 if self.causal else 0)
        each = 3 * self.dim + 2 * self.value_dim if self.backward else self.dim + self.value_dim
        return 2 * self.batch * self.heads * pairs * each

    @property
    def elements(self) -> int:
        """How many numbers must be read or written: queries, keys, values and the result; for the gradients these and theirs.

        >>> Attention(1, 2, 1, 4, 4, 8, 8).elements  # 64 of queries, 32 of keys, 32 of values, 64 of the result
        192
        """
        inputs = self.heads * self.queries * self.dim + self.kv_heads * self.keys * (self.dim + self.value_dim)
        return self.batch * (2 if self.backward else 1) * (inputs + self.heads * self.queries * self.value_dim)


def attention(word: str) -> Attention | None:
    """Return the attention that a word says, None for any other text.

    >>> attention("attention 8x16x4x4096x4096x128x128 causal bf16").kv_heads, attention("1x2x3x4 bf16"), attention("attention 1x2")
    (4, None, None)
    """
    first, _, rest = word.partition(" ")
    said, _, flags = rest.partition(" ")
    try:
        sizes = [int(size) for size in said.split("x")] if first == "attention" else []
    except ValueError:
        return None
    if len(sizes) != 7 or not all(0 < size < LARGEST for size in sizes):
        return None
    words = flags.split()
    precision = next((one for one in words if one not in ("causal", "backward")), "")
    batch, heads, kv_heads, queries, keys, dim, value_dim = sizes
    return Attention(batch, heads, kv_heads, queries, keys, dim, value_dim, "causal" in words, "backward" in words, precision)


@dataclass(frozen=True)
class Multiplied:
    """What multiplies and is no single product of two matrices: a `kind` (`CONVOLUTION`, `GROUPED`) of the tensors in `sizes`, its FLOPs
    and how many numbers it has to move at least, of one `precision` ("": not told)."""

    kind: str
    sizes: str
    flops: int
    elements: int
    precision: str = ""

    @property
    def word(self) -> str:
        """The same as one word of a table.

        >>> Multiplied(CONVOLUTION, "1x3x8x8*4x3x1x1", 1536, 460, "fp16").word
        'convolution 1x3x8x8*4x3x1x1 1536 FLOP 460 numbers fp16'
        """
        return f"{self.kind} {self.sizes} {self.flops} FLOP {self.elements} numbers {self.precision}".strip()


def multiplied(word: str) -> Multiplied | None:
    """Return what such a word says, None for any other text.

    >>> multiplied("grouped 2x4*3x4x5 80 FLOP 38 numbers").flops, multiplied("grouped"), multiplied("attention 1x2x3 4 5 6 7")
    (80, None, None)
    """
    parts = word.split(" ")
    if len(parts) not in (6, 7) or parts[0] not in (CONVOLUTION, GROUPED) or (parts[3], parts[5]) != ("FLOP", "numbers"):
        return None
    if not (parts[2].isdecimal() and parts[4].isdecimal()):
        return None
    return Multiplied(parts[0], parts[1], int(parts[2]), int(parts[4]), parts[6] if len(parts) == 7 else "")


def joined_word(elements: int) -> str:
    """Return the word of tensors that are joined (cat), of so many numbers, whose type their operator does not record.

    >>> joined_word(4096), joined_elements("4096 joined"), joined_elements("4096 B")
    ('4096 joined', 4096, None)
    """
    return f"{elements} joined"


def joined_elements(word: str) -> int | None:
    """Return how many numbers such a word says, None for any other text."""
    size, _, unit = word.partition(" ")
    return int(size) if unit == "joined" and size.isdecimal() else None


def moved_word(size: int) -> str:
    """Return the word of an operator that multiplies nothing and has to move so many bytes: its inputs and its result, each once.

    >>> moved_word(4096), moved_bytes("4096 B"), moved_bytes("1x2x3x4 bf16")
    ('4096 B', 4096, None)
    """
    return f"{size} B"


def moved_bytes(word: str) -> int | None:
    """Return the bytes that such a word says, None for any other text."""
    size, _, unit = word.partition(" ")
    return int(size) if unit == "B" and size.isdecimal() else None
