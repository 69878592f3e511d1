"""VeRL-Omni's count of Qwen-Image, from the tokens of latents and prompts."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.conventions.convention import Row, convention
from ullage.models.conventions.outline import kind
from ullage.models.formula import Formula
from ullage.models.step import Step

_KNOWN = ("QwenImagePipeline", "QwenImageTransformer2DModel")


@convention(
    "verl-omni",
    says="the timestep's MLP and the last layer's modulation are left out; edit, inpaint and ControlNet pipelines print 0",
    source="verl-project/verl-omni @a1139baf, verl_omni/utils/mfu (DiffusionFlopsCounter)",
)
def verl_omni(formula: Formula, step: Step) -> Iterator[Row]:
    """Yield the model's own work, without the timestep's MLP and the last modulation."""
    kind(formula, _KNOWN, "VeRL-Omni", "prints 0")
    for work in formula.works:
        if not work.name.startswith(("time.", "output.modulation")):
            yield work.name, work.flops * len(work.layers) * step.value(work.quantity)
