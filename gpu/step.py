"""Training steps with known FLOPs: a small decoder after Llama's plan, in plain PyTorch, trained without a pause."""

from __future__ import annotations

import gc
import importlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpu.check import NotMeasured
from gpu.load import SustainedWork
from gpu.machine import Machine
from gpu.pytorch import needed_torch
from ullage.adapters.meter import MeasuredStep
from ullage.adapters.torch import TorchMeter
from ullage.models.config import Config
from ullage.models.formula import compiled
from ullage.models.ledger import Ledger
from ullage.models.passes import Training
from ullage.models.sample import CAUSAL, Convention, Sample
from ullage.models.step import Step

CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
}  # fmt: skip
BATCH, LENGTH = 4, 4096  # 1e14 FLOPs a step: a fifth of a second on an H100
RANK = 16
MEMORY = 48e9  # bytes; a step without checkpoints keeps about 30e9
WARM, METERED = 3, 5  # steps before anything is measured, and those that TorchMeter measures
AHEAD = 2  # steps queued on the GPU before the host waits for the oldest


@dataclass(frozen=True)
class Variant:
    """A way to train the same decoder."""

    name: str
    training: Training


VARIANTS = (
    Variant("training", Training()),
    Variant("checkpoints", Training(recompute="full")),
    Variant("reentrant checkpoints", Training(recompute="full", reentrant=True)),
    Variant("LoRA", Training(lora_rank=RANK)),
    Variant("forward only", Training(forward_only=True)),
)


def ledger(
    variant: Variant, config: Mapping[str, Any] = CONFIG, batch: int = BATCH, length: int = LENGTH, attention: Convention = CAUSAL
) -> Ledger:
    """Return the ledger of one step.

    Backward is two products for one; a checkpoint does nearly all of the layers again.

    >>> forward = ledger(VARIANTS[-1]).executed
    >>> [round(ledger(variant).executed / forward, 2) for variant in VARIANTS]
    [3.0, 3.66, 3.88, 2.05, 1.0]
    """
    formula = compiled(Config(config))
    terms = formula.terms(Step(((Sample(text=length), batch),), attention), variant.training)
    return Ledger(terms, formula.name, formula.model.names[0], attention)


@dataclass
class Trial:
    """Steps of one variant: `work` counts executed FLOPs, a step a burst, and is complete when the trial has ended.

    `counted` is one forward pass by PyTorch's own counter, None where it has none; `metered` what TorchMeter told of
    `METERED` steps, which took `metered_seconds` by CUDA events.
    """

    work: SustainedWork
    counted: int | None
    metered: MeasuredStep
    metered_seconds: float


Trials = Callable[[Variant], AbstractContextManager[Trial]]


def trials(machine: Machine) -> Trials:
    """Return what trains on this machine: PyTorch, unless the machine brings its own. Raises NotMeasured without any."""
    own: Trials | None = getattr(machine, "trials", None)
    if own is not None:
        return own
    torch = needed_torch(machine)
    if not hasattr(torch.nn, "RMSNorm"):
        raise NotMeasured("PyTorch is older than 2.4")
    return partial(trial, torch)


@contextmanager
def trial(
    torch: Any,
    variant: Variant,
    config: Mapping[str, Any] = CONFIG,
    batch: int = BATCH,
    length: int = LENGTH,
    device: str = "cuda",
    clock: Callable[[], float] = time.time,
) -> Iterator[Trial]:
    """Train on the GPU while the body runs. Raises NotMeasured where it does not fit, ArithmeticError for a loss that is not a number."""
    gc.collect()  # an earlier model may still be held by a circle of references
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    if free < MEMORY:
        raise NotMeasured(f"{free / 1e9:.0f} GB of the GPU's memory are free, and a step may need {MEMORY / 1e9:.0f}")
    torch.manual_seed(0)
    model = decoder(torch, config, variant.training, device, torch.bfloat16)
    ids, labels = (torch.randint(config["vocab_size"], (batch, length), device=device) for _ in range(2))
    step = stepper(torch, model, variant.training, ids, labels)
    for _ in range(WARM):
        step()
    measured, seconds = _metered(torch, model, step, variant, ids)
    work = SustainedWork(batch * length, "bfloat16", float(ledger(variant, config, batch, length).executed))
    found = Trial(work, counted(torch, model, ids), measured, seconds)
    with repeated(torch, step, work, clock):
        yield found
    loss = float(step())
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss of '{variant.name}' is {loss}")


@contextmanager
def repeated(torch: Any, step: Callable[[], Any], work: SustainedWork, clock: Callable[[], float] = time.time) -> Iterator[None]:
    """Repeat a step while the body runs, and add each to the work, which is complete after the body; raises what a step raised."""
    stop, begun = threading.Event(), threading.Event()

    def drive() -> None:
        try:
            before = None
            for ended in _ends(torch, step, stop, clock):
                if before is not None:
                    work.bursts.append((before, ended))
                    begun.set()
                before = ended
        except BaseException as failure:  # told to the thread that waits for us
            work.failure = failure
        finally:
            begun.set()

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    begun.wait()
    try:
        if work.failure is None:
            yield
    finally:
        stop.set()
        thread.join()
    if work.failure is not None:
        raise work.failure


def _ends(torch: Any, step: Callable[[], Any], stop: threading.Event, clock: Callable[[], float]) -> Iterator[float]:
    """Yield when the GPU began, then when each step ended (s since 1970, by the GPU's own timer)."""
    torch.cuda.synchronize()
    base = torch.cuda.Event(enable_timing=True)
    base.record()
    base.synchronize()
    origin = clock()
    yield origin
    waiting: deque[Any] = deque()
    while waiting or not stop.is_set():
        if not stop.is_set():
            step()
            waiting.append(torch.cuda.Event(enable_timing=True, blocking=True))
            waiting[-1].record()
        while len(waiting) > (0 if stop.is_set() else AHEAD):
            ended = waiting.popleft()
            ended.synchronize()
            yield origin + base.elapsed_time(ended) / 1000


def counted(torch: Any, model: Any, ids: Any) -> int | None:
    """Return the FLOPs of one forward pass by PyTorch's own counter, every query with every key; None where there is none."""
    try:
        counter = importlib.import_module("torch.utils.flop_counter")
    except ImportError:
        return None
    with counter.FlopCounterMode(display=False) as mode, torch.no_grad():
        model(ids)
    return int(mode.get_total_flops())


def _metered(torch: Any, model: Any, step: Callable[[], Any], variant: Variant, ids: Any) -> tuple[MeasuredStep, float]:
    """Return what TorchMeter makes of some steps, and their seconds by CUDA events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    batches = [{"input_ids": ids}] * METERED
    with TorchMeter(model).measure(*batches, forward_only=variant.training.forward_only) as window:
        begin.record()
        for _ in batches:
            step()
        end.record()
    return window.measured, float(begin.elapsed_time(end)) / 1000


def stepper(torch: Any, model: Any, training: Training, ids: Any, labels: Any) -> Callable[[], Any]:
    """Return a function that does one step on a batch and returns its loss: forward, backward, AdamW; or forward only."""
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-5)

    def step() -> Any:
        with torch.set_grad_enabled(not training.forward_only):
            loss = torch.nn.functional.cross_entropy(model(ids).float().flatten(0, 1), labels.flatten())
        if not training.forward_only:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


def decoder(torch: Any, config: Mapping[str, Any], training: Training, device: str = "cpu", dtype: Any = None) -> Any:
    """Return the decoder as a module, its weights where Llama has them, frozen, adapted and checkpointed as `training` says.

    No rotary embeddings: they are no product. Its `config` and its checkpoints are told in the way of transformers.
    """
    nn, layer = torch.nn, _layer(torch, config, training, device)

    class Stack(nn.Module):  # type: ignore[misc, name-defined]  # a class of an optional library
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
            self.layers = nn.ModuleList(layer() for _ in range(config["num_hidden_layers"]))
            self.norm = nn.RMSNorm(config["hidden_size"], eps=1e-5)

        def forward(self, ids: Any) -> Any:
            stream = self.embed_tokens(ids)
            for one in self.layers:
                stream = one(stream)
            return self.norm(stream)

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = Stack()
            self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
            self.config = config

        def forward(self, ids: Any) -> Any:
            return self.lm_head(self.model(ids))

    with torch.device(device):
        made = Decoder().to(dtype)
    for name, weight in made.named_parameters():
        weight.requires_grad_(not training.lora_rank or ".lora_" in name)
    return made


def _layer(torch: Any, config: Mapping[str, Any], training: Training, device: str) -> Any:
    """Return the class of a layer: attention and a gated MLP, each behind a norm; a checkpoint where `training` recomputes."""
    nn, width, inner = torch.nn, config["hidden_size"], config["intermediate_size"]
    linear, attention = _linear(torch, training.lora_rank), _attention(torch, config, training, device)
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint

    class Mlp(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gate_proj, self.up_proj, self.down_proj = linear(width, inner), linear(width, inner), linear(inner, width)

        def forward(self, rows: Any) -> Any:
            return self.down_proj(nn.functional.silu(self.gate_proj(rows)) * self.up_proj(rows))

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.self_attn, self.mlp = attention(), Mlp()
            self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(width, eps=1e-5) for _ in range(2))
            self.gradient_checkpointing = training.recompute == "full"
            self._gradient_checkpointing_func = partial(checkpoint, use_reentrant=training.reentrant)

        def forward(self, stream: Any) -> Any:
            again = self.gradient_checkpointing and torch.is_grad_enabled()
            return self._gradient_checkpointing_func(self.through, stream) if again else self.through(stream)

        def through(self, stream: Any) -> Any:
            stream = stream + self.self_attn(self.input_layernorm(stream))
            return stream + self.mlp(self.post_attention_layernorm(stream))

    return Layer


def _attention(torch: Any, config: Mapping[str, Any], training: Training, device: str) -> Any:
    """Return the class of grouped-query attention; on the GPU its kernel is flash-attention's, as the note on OFU takes it to be."""
    nn, width, heads, key_heads = torch.nn, config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    linear, dim = _linear(torch, training.lora_rank), width // heads
    kernel: Callable[[], AbstractContextManager[Any]] = nullcontext
    if device == "cuda":
        choice = importlib.import_module("torch.nn.attention")
        kernel = partial(choice.sdpa_kernel, choice.SDPBackend.FLASH_ATTENTION)

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.q_proj, self.o_proj = linear(width, heads * dim), linear(heads * dim, width)
            self.k_proj, self.v_proj = linear(width, key_heads * dim), linear(width, key_heads * dim)

        def forward(self, rows: Any) -> Any:
            q, k, v = (p(rows).unflatten(-1, (-1, dim)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
            k, v = (shared.repeat_interleave(heads // key_heads, dim=1) for shared in (k, v))
            with kernel():
                mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o_proj(mixed.transpose(1, 2).flatten(2))

    return Attention


def _linear(torch: Any, rank: int | None) -> Any:
    """Return what makes a projection: plain, or with an adapter of this rank, its weights under the names that PEFT gives them."""
    nn = torch.nn

    class Adapted(nn.Linear):  # type: ignore[misc, name-defined]
        def __init__(self, inner: int, columns: int) -> None:
            super().__init__(inner, columns, bias=False)
            self.lora_A = nn.ModuleDict({"default": nn.Linear(inner, rank, bias=False)})
            self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, columns, bias=False)})

        def forward(self, rows: Any) -> Any:
            return super().forward(rows) + self.lora_B["default"](self.lora_A["default"](rows))

    return Adapted if rank else partial(nn.Linear, bias=False)
