"""Dense decoders with grouped-query attention: Llama and the many that follow its plan, gated or not, with windows or without."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, Layout
from ullage.models.model import model
from ullage.models.plans import Plan, chosen, names, planned
from ullage.models.plans import windows as windows  # other families read layer_types with it
from ullage.models.work import Work

ALL = (LM, CLASSIFIER, TAGGER, BARE)
UNGATED = Layout(mlp=("mlp.up_proj", "mlp.down_proj"))
QWEN = {"num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
MISTRAL = {"num_key_value_heads": 8, "sliding_window": 4096}
LLAMA_SIZES, MISTRAL_SIZES, QWEN_SIZES = (4096, 11008, 32, 32, 32000), (4096, 14336, 32, 32, 32000), (4096, 22016, 32, 32, 151936)

PLANS = (
    Plan("Llama", "llama", ALL, sizes=LLAMA_SIZES),
    Plan("Mistral", "mistral", ALL, MISTRAL, MISTRAL_SIZES, window="all"),
    Plan("Ministral", "ministral", ALL, MISTRAL, MISTRAL_SIZES, window="typed"),
    Plan("Ministral3", "ministral3", ALL, {"num_key_value_heads": 8, "head_dim": 128}, (4096, 14336, 34, 32, 131072), window="all"),
    Plan("Qwen2", "qwen2", ALL, QWEN, QWEN_SIZES, window="typed"),
    Plan("Qwen3", "qwen3", ALL, {**QWEN, "head_dim": 128}, QWEN_SIZES, window="typed"),
    Plan("SeedOss", "seed_oss", ALL, {"num_key_value_heads": 8, "head_dim": 128}),
    Plan("Granite", "granite", sizes=LLAMA_SIZES),
    Plan("GraniteSWA", "granite_swa", fields={"num_key_value_heads": 4, "sliding_window": 128}, window="typed", every=4, first=True),
    Plan("Exaone4", "exaone4", ALL, {"num_key_value_heads": 32, "sliding_window": 4096}, window="typed", every=4),
    Plan("Helium", "helium", ALL, {"num_key_value_heads": 20, "head_dim": 128}),
    Plan("HunYuanDenseV1", "hunyuan_v1_dense", (LM, CLASSIFIER, BARE)),
    Plan("HyperCLOVAX", "hyperclovax"),
    Plan("Ernie4_5", "ernie4_5", (LM, BARE, "_ForCausalLM"), {"num_key_value_heads": 2, "head_dim": 128}, (1024, 3072, 18, 16, 103424)),
    Plan("BitNet", "bitnet", fields={"num_key_value_heads": 5}),
    Plan("Cwm", "cwm", fields={"num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192}, window="typed", every=4, first=True),
    Plan("StableLm", "stablelm", ALL, {"num_key_value_heads": 32}),
    Plan("Arcee", "arcee", ALL, gated=False, layout=UNGATED),
    Plan("Apertus", "apertus", (LM, TAGGER, BARE), gated=False, layout=UNGATED),
    Plan("Nemotron", "nemotron", ALL, gated=False, layout=UNGATED),
    Plan("Jais2", "jais2", gated=False, layout=UNGATED),
    Plan("NanoChat", "nanochat", gated=False, layout=Layout(mlp=("mlp.fc1", "mlp.fc2"))),
    Plan("IQuestCoder", "iquestcoder", ()),
)


@model(*names(PLANS), source="transformers 5.23, models/llama, mistral, qwen2, qwen3, nemotron, …; verified to the integer against traces")
def llama(config: Config) -> Iterator[Work]:
    """Llama, Mistral, Qwen 2 and 3, Seed-OSS, Granite, EXAONE 4, StableLM, Nemotron, Apertus and their like.

    A step of T tokens costs 2T[L(h(n+2k)d + ndh + ghf) + Vh] + 4ndL × pairs FLOPs forward, with g = 3 for a gated MLP, 2
    without a gate (Nemotron, Arcee, Apertus, Jais 2, nanochat). Grouped-query attention, head width d free of h/n, tied or
    untied head; windows where layers have them. Classifiers score each token's labels in place of the vocabulary.
    """
    yield from decoder(config)


def decoder(config: Config, stack: str | None = None) -> Iterator[Work]:
    """Yield the work of a decoder of one of these plans; for a `text_config`, its section, and `stack` the path of its layers there.

    The plan is that of the architecture's name or of the `model_type`; what has neither is refused.
    """
    yield from planned(config, chosen(config, PLANS), stack)
