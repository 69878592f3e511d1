"""What questions about a model's step share: its shapes, how it trains, and on what it ran."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ullage.asking import WrongQuestionError, askable, asked, question_of
from ullage.errors import UllageError, harmless
from ullage.written_values import expanded_path

if TYPE_CHECKING:
    from ullage.models.config import Config
    from ullage.reports.flops import StepQuestion

SECTION = "step"  # of a configuration, or of a file of a step


def read_numbers(text: str, flag: str, now: float) -> tuple[int, ...]:  # noqa: ARG001 - a TextReader
    """Read whole numbers separated by commas.

    >>> read_numbers("21,60,104", "--latent", 0)
    (21, 60, 104)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise WrongQuestionError(f"{flag} '{harmless(text, 60)}' is not whole numbers separated by commas") from None


def read_number_or_numbers(text: str, flag: str, now: float) -> int | tuple[int, ...]:
    """Read a whole number, or several separated by commas."""
    numbers = read_numbers(text, flag, now)
    return numbers[0] if len(numbers) == 1 else numbers


def read_two_or_three(text: str, flag: str, now: float) -> tuple[int, ...]:
    """Read two or three whole numbers."""
    return _counted(text, flag, now, (2, 3))


def read_pairs(texts: tuple[str, ...], flag: str, now: float) -> tuple[tuple[int, ...], ...]:
    """Read two whole numbers from each text."""
    return tuple(_counted(text, flag, now, (2,)) for text in texts)


def read_triples(texts: tuple[str, ...], flag: str, now: float) -> tuple[tuple[int, ...], ...]:
    """Read three whole numbers from each text."""
    return tuple(_counted(text, flag, now, (3,)) for text in texts)


def _counted(text: str, flag: str, now: float, counts: tuple[int, ...]) -> tuple[int, ...]:
    numbers = read_numbers(text, flag, now)
    if len(numbers) not in counts:
        takes = " or ".join(map(str, counts))
        raise WrongQuestionError(f"{flag} '{harmless(text, 60)}' has {len(numbers)} numbers, and takes {takes}")
    return numbers


def read_words(text: str, flag: str, now: float) -> tuple[str, ...]:  # noqa: ARG001 - a TextReader
    """Read words separated by commas.

    >>> read_words("q_proj,v_proj", "--lora-targets", 0)
    ('q_proj', 'v_proj')
    """
    return tuple(word for word in text.split(",") if word)


def read_recompute(text: str, flag: str, now: float) -> str | tuple[str, ...]:
    """Read what is computed again: none, full, or names of work."""
    return text if text in ("none", "full") else read_words(text, flag, now)


def read_precisions(texts: tuple[str, ...], flag: str, now: float) -> dict[str, str]:  # noqa: ARG001 - a TextReader
    """Read precisions by pattern of work.

    >>> read_precisions(("bf16", "mlp=fp8"), "--precision", 0)
    {'*': 'bf16', 'mlp': 'fp8'}
    """
    pairs = (text.rpartition("=") for text in texts)
    return {pattern or "*": precision for pattern, _, precision in pairs}


def read_layout(text: str, flag: str, now: float) -> dict[str, int]:  # noqa: ARG001 - a TextReader
    """Read sizes of parallelism by name.

    >>> read_layout("tp=4,pp=2", "--layout", 0)
    {'tp': 4, 'pp': 2}
    """
    sizes = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not size.strip().isascii() or not size.strip().isdigit():
            raise WrongQuestionError(f"{flag} '{harmless(part, 60)}' is not a name and its size: write tp=4,pp=2")
        sizes[name.strip()] = int(size)
    return sizes


@dataclass(frozen=True, kw_only=True)
class StepDescription:
    """A step of a model as somebody describes it: its shapes, how it trains, by which convention FLOPs are counted, on what it ran.

    None is not said: then a file or the configuration's own section may say it, and else the default holds.
    """

    batch: int | None = asked("Samples of one step, over all GPUs.", shown="1")
    seq: int | None = asked("Tokens of a sequence.")
    step_time: float | None = asked("Measured time of a step: gives FLOP/s, MFU and HFU.", metavar="SECONDS")
    gpus: int | None = asked("GPUs that worked on the step.", shown="those of the layout, or 1")
    gpu: str | None = asked("Which GPU: 'H100 SXM'.", metavar="NAME", suggested="ullage.gpus.chip:all_names")
    precision: dict[str, str] | None = asked(
        "Precision: bf16, or mlp=fp8. Repeatable.",
        short="-p",
        metavar="[WORK=]NAME",
        read=read_precisions,
        repeated=True,
        shown="bf16",
    )
    step: str | None = asked(
        "A file that describes the step, TOML or JSON, in the words of these options: batch = 512. What is given beside it goes first.",
        metavar="FILE",
    )

    seqlens: tuple[int, ...] | None = asked(
        "Lengths of packed sequences, instead of --batch and --seq.", metavar="N,N…", read=read_numbers, minor=True
    )
    encoder_seq: int | None = asked("Tokens on the encoder's side.", minor=True)
    decoder_seq: int | None = asked("Tokens on the decoder's side.", minor=True)
    context: int | None = asked("Tokens already in the cache: a step of generation.", minor=True)
    logits: Literal["all", "last"] | None = asked("Tokens that reach the LM head.", shown="all", minor=True)
    image: tuple[tuple[int, int], ...] | None = asked(
        "An image of every sample, in pixels. Repeatable.", metavar="H,W", read=read_pairs, repeated=True, minor=True
    )
    image_tokens: int | None = asked("Image tokens of a sample, where images come as tokens.", minor=True)
    grid: tuple[tuple[int, int, int], ...] | None = asked(
        "Patches of an image or video, before merging. Repeatable.", metavar="T,H,W", read=read_triples, repeated=True, minor=True
    )
    latent: tuple[int, ...] | None = asked("Latent grid before patching.", metavar="[T,]H,W", read=read_two_or_three, minor=True)
    latent_tokens: int | tuple[int, ...] | None = asked(
        "Latent tokens after patching; one number a sample, or one.", metavar="N[,N…]", read=read_number_or_numbers, minor=True
    )
    reference_tokens: int | None = asked("Latent tokens of reference images (edit, ControlNet).", minor=True)
    prompt_tokens: int | tuple[int, ...] | None = asked(
        "Prompt tokens; one number a sample, or one.", metavar="N[,N…]", read=read_number_or_numbers, minor=True
    )
    audio_frames: int | None = asked("Frames of an audio encoder.", minor=True)
    timesteps: int | None = asked("Timesteps of a diffusion model in the step.", shown="1", minor=True)
    forward_passes: int | None = asked("Forward passes a timestep; classifier-free guidance runs 2.", shown="1", minor=True)
    guidance_scale: float | None = asked("Guidance: above 1 a timestep runs 2 passes, unless the model is distilled.", minor=True)
    accumulation: int | None = asked("Batches of one optimiser step.", shown="1", minor=True)
    padded_seq: int | None = asked("Length to which sequences are padded: executed, not model work.", minor=True)

    attention: Literal["causal", "full"] | None = asked("How attention is counted.", shown="causal where it is", minor=True)
    imitate: str | None = asked(
        "What a framework would print: verl, megatron, palm, torchtitan, hf, automodel, nemo, verl-omni.",
        flag="--as",
        metavar="NAME",
        suggested="ullage.models.conventions.convention:CONVENTIONS",
        minor=True,
    )
    forward_only: bool | None = asked("No backward pass.", minor=True)
    backward: Literal["twice", "exact"] | None = asked("Convention of backward.", shown="twice", minor=True)
    recompute: str | tuple[str, ...] | None = asked(
        "What is computed again: full, or work such as attention.scores.",
        metavar="none|full|NAME…",
        read=read_recompute,
        shown="none",
        minor=True,
    )
    reentrant: bool | None = asked("Checkpoints of PyTorch's reentrant kind, which do whole layers again.", minor=True)
    freeze: tuple[str, ...] | None = asked(
        "Frozen weights: module paths (visual.*, model.layers.3.*) or work (embedding).", metavar="PATTERN…", read=read_words, minor=True
    )
    freeze_layers: int | None = asked("Layers frozen from the bottom.", minor=True)
    lora_rank: int | None = asked("Rank of LoRA adapters; all else is frozen.", minor=True)
    lora_targets: tuple[str, ...] | None = asked(
        "Modules with adapters: q_proj,v_proj.", metavar="NAME…", read=read_words, shown="all-linear", minor=True
    )
    mtp: bool | None = asked("Count the layers that predict further tokens (num_nextn_predict_layers).", minor=True)
    config_kind: str | None = asked("What the model is, where the config can't tell: llama.", metavar="NAME", minor=True)

    peak_tflops: str | None = asked(
        "Peak of a relabelled board: 989.4, or bf16=989.4.", metavar="TFLOPS", env="ULLAGE_PEAK_TFLOPS", minor=True
    )
    layout: dict[str, int] | None = asked("Sizes of parallelism in one word: tp=4,pp=2.", metavar="NAME=N,…", read=read_layout, minor=True)
    dp: int | None = asked("Size of data parallelism.", shown="1", minor=True)
    tp: int | None = asked("Size of tensor parallelism.", shown="1", minor=True)
    pp: int | None = asked("Size of pipeline parallelism.", shown="1", minor=True)
    cp: int | None = asked("Size of context parallelism.", shown="1", minor=True)
    sp: int | None = asked("Size of Ulysses sequence parallelism.", shown="1", minor=True)
    ep: int | None = asked("Size of expert parallelism.", shown="1", minor=True)

    def words(self) -> dict[str, Any]:
        """Return what is said of the step, by word: by its file, and by what is given beside that, which goes first."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(StepDescription)}
        beside = {word: value for word, value in given.items() if value is not None and word != "step"}
        return {**({} if self.step is None else words_of_file(self.step)), **beside}

    def question(self, model: Config | None = None) -> StepQuestion:
        """Return the question about a step of a model. Raises UllageError for what no step can be."""
        return question_in_words(self.words(), model)


_LAYOUT = ("dp", "tp", "pp", "cp", "sp", "ep")
_TRAINING = ("forward_only", "backward", "recompute", "reentrant", "freeze", "freeze_layers", "lora_rank", "lora_targets")
_COUNTING = ("attention", "config_kind", "imitate", "mtp", "precision", "step_time", "gpus", "gpu", "peak_tflops")
_RENAMED = {"freeze": "frozen", "freeze_layers": "frozen_layers", "config_kind": "kind", "imitate": "imitated", "precision": "precisions"}


def question_in_words(words: Mapping[str, Any], model: Config | None = None) -> StepQuestion:
    """Return the question about a step that some words ask, as `StepDescription.words` gives them."""
    from ullage.models.config import Config
    from ullage.models.passes import Training
    from ullage.models.shapes import Shapes, forward_passes
    from ullage.reports.flops import StepQuestion

    said = dict(words)
    layout = _layout({**said.pop("layout", {}), **_taken(said, _LAYOUT)})
    scale = said.pop("guidance_scale", None)
    if scale is not None:
        said["forward_passes"] = forward_passes(model or Config({}), said.get("forward_passes"), scale)
    training = Training(**_taken(said, _TRAINING))
    counting = _taken(said, _COUNTING)
    return StepQuestion(shapes=Shapes(sp=layout.sp, **said), training=training, layout=layout, **counting)


def _taken(said: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Take words out of what is said, and return them as the fields of reports are called."""
    taken = {_RENAMED.get(name, name): said.pop(name) for name in names if name in said}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in taken.items()}


def _layout(sizes: Mapping[str, int]) -> Any:
    from ullage.reports.flops import ParallelLayout

    for name in sizes:
        if name not in _LAYOUT:
            raise UllageError(f"a layout has no '{harmless(name, 60)}'", f"it has {', '.join(_LAYOUT)}")
    return ParallelLayout(**sizes)


def step_question(*, tile_efficiency: float = 1.0, **words: Any) -> StepQuestion:
    """Return the question about a step in the words of `StepDescription`; raises UllageError for a word that no step has."""
    described = question_of(StepDescription, words, noun="a step", command="ullage flops --help")
    return dataclasses.replace(described.question(), tile_efficiency=tile_efficiency)


def words_of_section(section: Any, place: str) -> dict[str, Any]:
    """Return what a section of a file says of a step, by word. Raises UllageError that names the file and the word."""
    if not isinstance(section, Mapping):
        raise UllageError(f"'{SECTION}' of {place} is no section of fields", 'write {"batch": 512, "seq": 4096, "step_time": 21.0}')
    for field in askable(StepDescription):
        value = section.get(field.name)
        if value is not None and not isinstance(value, str) and not _is_of_kind(value, field.name):
            must = f"written as {field.metavar}" if field.read else _KINDS[field.kind]
            raise UllageError(f"'{field.name}' of {place} is {harmless(repr(value), 60)}, and must be {must}")
    try:
        described = question_of(StepDescription, section, noun=f"'{SECTION}' of {place}", command="ullage flops --help")
    except UllageError as error:
        problem = error.problem if place in error.problem else f"{place}: {error.problem}"
        raise UllageError(problem, error.hint) from error
    return described.words()


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _is_of_kind(value: Any, word: str) -> bool:
    """Return whether a file's value is what a word of a step means: a list of numbers for a latent, a size by name for a layout.

    >>> _is_of_kind([21, 60, 104], "latent"), _is_of_kind(True, "batch"), _is_of_kind(["*", "bf16"], "precision")
    (True, False, False)
    """
    import msgspec

    try:
        msgspec.convert(value, typing.get_type_hints(StepDescription)[word])
    except msgspec.ValidationError:
        return False
    return True


def words_of_file(name: str) -> dict[str, Any]:
    """Return what a file says of a step: TOML or JSON, its section `step` or all of it."""
    path, place = expanded_path(name), harmless(name)
    try:
        found = _decoded(path)
    except OSError as error:
        raise UllageError(f"the step {place} can't be read: {error.strerror}", "name a TOML or JSON file with its words") from error
    except ValueError as error:
        wrong = harmless(str(error), 120)
        raise UllageError(f"{place} is not {_form(path)}: {wrong}", 'write batch = 512, or {"batch": 512}') from error
    return words_of_section(found.get(SECTION, found) if isinstance(found, dict) else found, place)


def _form(path: Path) -> str:
    return "JSON" if path.suffix.lower() == ".json" else "TOML"


def _decoded(path: Path) -> Any:
    import json
    import tomllib

    text = path.read_text(encoding="utf-8")
    return json.loads(text) if _form(path) == "JSON" else tomllib.loads(text)
