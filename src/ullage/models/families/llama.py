"""Dense decoders with grouped-query attention and a gated MLP: Llama and the many that follow its plan."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.sample import pairs
from ullage.models.work import Work


@model(
    *("LlamaForCausalLM", "llama", "MistralForCausalLM", "mistral", "Qwen2ForCausalLM", "qwen2", "Qwen3ForCausalLM", "qwen3"),
    source="transformers 5.23, models/llama; verified to the integer against traces",
)
def llama(config: Config) -> Iterator[Work]:
    """Llama and its like: grouped-query attention, gated MLP, tied or untied head; windows where layers have them.

    A step of T tokens costs 2T[L(h(n+2k)d + ndh + 3hf) + Vh] + 4ndL × pairs FLOPs forward.
    """
    layers = config.layers()
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    dim = config.integer("head_dim", default=width // heads)
    key_heads = config.integer("num_key_value_heads", default=heads)
    yield embedding()
    for window, members in windows(config, layers):
        yield from self_attention(width, heads, key_heads, dim, members, of=pairs(window))
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True)
    yield head(width, config.integer("vocab_size"))


def windows(config: Config, layers: range) -> list[tuple[int | None, list[int]]]:
    """Return the layers by their sliding window (None: all that came before).

    `layer_types` names them where it is there; else a `sliding_window` holds for all layers (Mistral), unless
    `use_sliding_window` says no (Qwen, whose first `max_window_layers` are full when it says yes).
    """
    window = config.optional("sliding_window") if config.values.get("sliding_window") else None
    kinds = config.words("layer_types", len(layers), {"full_attention", "sliding_attention"})
    if window is None or not config.flag("use_sliding_window", True):
        sliding: set[int] = set()
    elif kinds:
        sliding = {i for i in layers if kinds[i] == "sliding_attention"}
    else:
        sliding = set(layers[config.integer("max_window_layers", default=0, least=0) :])
    parts = [(None, [i for i in layers if i not in sliding]), (window, [i for i in layers if i in sliding])]
    return [(w, members) for w, members in parts if members]
