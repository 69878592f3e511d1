"""The options that describe a step, how it trains and on what it ran: the same words for every command that asks for FLOPs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def sizes(*counts: int) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that reads comma-separated whole numbers, as many as one of `counts` says (any, without)."""

    def read(_: click.Context, __: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(one(text) for text in value)
        return one(value)

    def one(text: str) -> tuple[int, ...]:
        try:
            numbers = tuple(int(part) for part in text.split(","))
        except ValueError:
            raise click.BadParameter(f"'{text}' is not whole numbers separated by commas") from None
        if counts and len(numbers) not in counts:
            raise click.BadParameter(f"'{text}' has {len(numbers)} numbers, and takes {' or '.join(map(str, counts))}")
        return numbers

    return read


_STEP: list[Any] = [
    click.option("--batch", type=int, help="Samples of one step, over all GPUs.  [default: 1]"),
    click.option("--seq", type=int, help="Tokens of a sequence."),
    click.option("--seqlens", callback=sizes(), metavar="N,N…", help="Lengths of packed sequences, instead of --batch and --seq."),
    click.option("--encoder-seq", type=int, help="Tokens on the encoder's side."),
    click.option("--decoder-seq", type=int, help="Tokens on the decoder's side."),
    click.option("--context", type=int, help="Tokens already in the cache: a step of generation."),
    click.option("--logits", type=click.Choice(["all", "last"]), default="all", show_default=True, help="Tokens that reach the LM head."),
    click.option("--image", multiple=True, callback=sizes(2), metavar="H,W", help="An image of every sample, in pixels. Repeatable."),
    click.option("--image-tokens", type=int, help="Image tokens of a sample, where images come as tokens."),
    click.option(
        "--grid", multiple=True, callback=sizes(3), metavar="T,H,W", help="Patches of an image or video, before merging. Repeatable."
    ),
    click.option("--latent", callback=sizes(2, 3), metavar="[T,]H,W", help="Latent grid before patching."),
    click.option("--latent-tokens", callback=sizes(), metavar="N[,N…]", help="Latent tokens after patching; one number a sample, or one."),
    click.option("--reference-tokens", type=int, default=0, help="Latent tokens of reference images (edit, ControlNet)."),
    click.option("--prompt-tokens", callback=sizes(), metavar="N[,N…]", help="Prompt tokens; one number a sample, or one."),
    click.option("--audio-frames", type=int, help="Frames of an audio encoder."),
    click.option("--timesteps", type=int, default=1, show_default=True, help="Timesteps of a diffusion model in the step."),
    click.option("--forward-passes", type=int, help="Forward passes a timestep; classifier-free guidance runs 2.  [default: 1]"),
    click.option("--guidance-scale", type=float, help="Guidance: above 1 a timestep runs 2 passes, unless the model is distilled."),
    click.option("--accumulation", type=int, default=1, show_default=True, help="Batches of one optimiser step."),
    click.option("--padded-seq", type=int, help="Length to which sequences are padded: executed, not model work."),
]
_TRAINING: list[Any] = [
    click.option("--attention", type=click.Choice(["causal", "full"]), help="How attention is counted.  [default: causal where it is]"),
    click.option(
        "--as",
        "imitate",
        metavar="NAME",
        help="What a framework would print: verl, megatron, palm, torchtitan, hf, automodel, nemo, verl-omni.",
    ),
    click.option("--forward-only", is_flag=True, help="No backward pass."),
    click.option("--backward", type=click.Choice(["twice", "exact"]), default="twice", show_default=True, help="Convention of backward."),
    click.option(
        "--recompute",
        default="none",
        show_default=True,
        metavar="none|full|NAME…",
        help="What is computed again: full, or work such as attention.scores.",
    ),
    click.option("--reentrant", is_flag=True, help="Checkpoints of PyTorch's reentrant kind, which do whole layers again."),
    click.option("--freeze", metavar="PATTERN…", help="Frozen weights: module paths (visual.*, model.layers.3.*) or work (embedding)."),
    click.option("--freeze-layers", type=int, default=0, help="Layers frozen from the bottom."),
    click.option("--lora-rank", type=int, help="Rank of LoRA adapters; all else is frozen."),
    click.option("--lora-targets", default="all-linear", show_default=True, metavar="NAME…", help="Modules with adapters: q_proj,v_proj."),
    click.option("--mtp", is_flag=True, help="Count the layers that predict further tokens (num_nextn_predict_layers)."),
    click.option("--config-kind", metavar="NAME", help="What the model is, where the config can't tell: llama."),
]
TILES = click.option(
    "--tile-efficiency", type=float, default=1.0, help="Share of executed FLOPs that tiles did not pad: for the OFU to expect."
)
LAYOUT = {"dp": "data", "tp": "tensor", "pp": "pipeline", "cp": "context", "sp": "Ulysses sequence", "ep": "expert"}
_USE: list[Any] = [
    click.option("--step-time", type=float, metavar="SECONDS", help="Measured time of a step: gives FLOP/s, MFU and HFU."),
    click.option("--gpus", type=int, help="GPUs that worked on the step.  [default: those of the layout, or 1]"),
    click.option("--gpu", metavar="NAME", help="Which GPU: 'H100 SXM'."),
    click.option(
        "--precision",
        "-p",
        multiple=True,
        default=("bf16",),
        show_default=True,
        metavar="[WORK=]NAME",
        help="Precision: bf16, or mlp=fp8. Repeatable.",
    ),
    click.option("--peak-tflops", envvar="ULLAGE_PEAK_TFLOPS", metavar="TFLOPS", help="Peak of a relabelled board: 989.4, or bf16=989.4."),
    *(click.option(f"--{name}", type=int, default=1, help=f"Size of {words} parallelism.") for name, words in LAYOUT.items()),
]


def described(command: Any) -> Any:
    """Give a command the options that describe a step, how it trains and on what it ran."""
    for option in reversed([*_STEP, *_TRAINING, *_USE]):
        command = option(command)
    return command
