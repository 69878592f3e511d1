"""Gemma 1, 2 and 3: wide heads, a gated MLP; windows in every other layer (2) or in five of six (3)."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, two_sided
from ullage.models.model import model
from ullage.models.plans import Plan, chosen, exchanged, names, planned, shape
from ullage.models.sample import pairs
from ullage.models.work import Work

HEADS = (LM, CLASSIFIER, TAGGER, BARE)
GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208, "sliding_window": 4096}
PLANS = (
    Plan("Gemma", "gemma", HEADS, {"num_key_value_heads": 16, "head_dim": 256}, (3072, 24576, 28, 16, 256_000)),
    Plan(
        *("Gemma2", "gemma2", HEADS),
        {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
        (2304, 9216, 26, 8, 256_000),
        window="typed",
        every=2,
    ),
    Plan(
        *("VaultGemma", "vaultgemma", (LM, BARE)),
        {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
        (2304, 9216, 26, 8, 256_000),
        window="typed",
        every=2,
    ),
    Plan(
        *("Gemma3", "gemma3_text", (LM, "TextForSequenceClassification", "TextModel")),
        GEMMA3,
        (2304, 9216, 26, 8, 262_208),
        window="typed",
        every=6,
    ),
)


@model(*names(PLANS), source="transformers 5.23, models/gemma, gemma2, gemma3, vaultgemma; verified to the integer against traces")
def gemma(config: Config) -> Iterator[Work]:
    """Gemma, CodeGemma, Gemma 2, VaultGemma, the text model of Gemma 3, and EmbeddingGemma, which sees both sides.

    Llama's closed form with head width 256, free of h/n. Capping logits, norms and local rotary bases cost nothing.
    """
    yield from decoder(config)


def decoder(config: Config, stack: str | None = None) -> Iterator[Work]:
    """Yield the work of a Gemma decoder; for a `text_config`, its section, and `stack` the path of its layers there.

    The section says by its `model_type` which Gemma it is.
    """
    plan = chosen(config, PLANS)
    works = planned(config, plan, stack)
    if not config.flag("use_bidirectional_attention"):
        yield from works
        return
    # Where attention sees both sides, half of the window lies on each: w/2 tokens before, w/2 after
    spans = {window for window, _ in shape(config, plan).spans}
    yield from exchanged(works, {pairs(w): two_sided(None if w is None else w // 2 + 1) for w in spans})
