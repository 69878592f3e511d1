"""One run of a real model over a trial, counted: forward, or forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.models.config import Config
from ullage.models.tracing import denoisers, inputs
from ullage.models.tracing.build import COUNTING, META, REAL, ModelPlace, built
from ullage.models.tracing.counter import Count, counted
from ullage.models.tracing.libraries import alone, installed, library
from ullage.models.tracing.trials import Trial

Progress = Callable[[str], None]


@dataclass
class Tracer:
    """A real model, ready to be counted at any trial.

    It is built on the meta device; where a run fails there, with real integers, and last with real weights on the CPU.
    """

    config: Config
    progress: Progress = lambda _: None
    _places: list[ModelPlace] = field(default_factory=lambda: [META, COUNTING, REAL])
    _model: Any = None

    @property
    def model(self) -> Any:
        """The model itself."""
        if self._model is None:
            self.progress(f"building {self.config.architecture or 'the model'}")
            self._model = built(self.config, self._places[0])
        return self._model

    @property
    def place(self) -> ModelPlace:
        """Where the model lives now."""
        return self._places[0]

    def forward(self, trial: Trial) -> Count:
        """Return what a forward pass costs."""
        return self._counted(trial, backward=False)

    def training(self, trial: Trial) -> Count:
        """Return what a forward and a backward pass of the summed output cost, all weights trained."""
        return self._counted(trial, backward=True)

    def _counted(self, trial: Trial, backward: bool) -> Count:
        while True:
            self.progress(f"tracing {'forward and backward' if backward else 'forward'} at {trial.record()}")
            try:
                return self._run(trial, backward)
            except UllageError:
                raise
            except Exception as error:
                if len(self._places) == 1:
                    raise self._failed(trial, error) from error
                self._places.pop(0)
                self._model = None

    def _run(self, trial: Trial, backward: bool) -> Count:
        torch, model = library("torch"), self.model
        diffuses = hasattr(model, "config_name") and not hasattr(model, "config_class")
        call = (denoisers if diffuses else inputs).arguments(model, self.config, trial, self.place)
        entry = denoisers.entry(model, self.config.architecture)
        run = model if entry == model.forward else entry
        with alone(), _traceable():
            if not backward:
                with torch.no_grad():
                    return _routed(counted(lambda: run(**call), model), model)
            model.zero_grad(set_to_none=True)
            return _routed(counted(lambda: _output(run(**call)).sum().backward(), model), model)

    def _failed(self, trial: Trial, error: Exception) -> UllageError:
        words = harmless(" ".join(str(error).split()) or type(error).__name__, 200)
        return UllageError(
            f"{type(self.model).__name__} of {self.config.place} can't be traced at {trial.record()}: {words}",
            "only the formula, or a run on a real machine, can tell its FLOPs",
        )


DENSE_EXPERTS = ("Llama4TextExperts",)


def _routed(count: Count, model: Any) -> Count:
    """Return the count with what is routed only, where a class runs every expert over every token and weights most with zero.

    The model needs `num_experts_per_tok` of them; the library's eager code for Llama 4 does them all.
    """
    dense = {name: module for name, module in model.named_modules() if type(module).__name__ in DENSE_EXPERTS}
    if not dense:
        return count
    active = next(s for s in (getattr(model.config, "text_config", None), model.config) if s is not None).num_experts_per_tok
    return Count({
        (path, operator): flops * active // dense[path].num_experts if path in dense else flops
        for (path, operator), flops in count.products.items()
    })  # fmt: skip


def _output(result: Any) -> Any:
    """Return what a loss would see: the logits, the denoised sample, or without them everything that takes part in gradients."""
    torch = library("torch")
    result = getattr(result, "latent_dist", result)
    for name in ("logits", "logits_per_image", "sample", "parameters"):
        found = result.get(name) if isinstance(result, dict) else getattr(result, name, None)
        if isinstance(found, torch.Tensor):
            return found
    leaves, _ = library("torch.utils._pytree").tree_flatten(tuple(result.values()) if isinstance(result, dict) else result)
    return torch.stack([t.sum() for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad])


@contextmanager
def _traceable() -> Iterator[None]:
    """Keep transformers from what no trace survives, as long as this lasts.

    It looks for packed sequences in the values of positions, which meta tensors have not; and Llama 4 with images, in 5.24.0,
    reads a field `image_outputs` of its text model's output, which has none.
    """
    masks, packed = installed("transformers.masking_utils"), "find_packed_sequence_indices"
    output = getattr(installed("transformers.modeling_outputs"), "MoeCausalLMOutputWithPast", None)
    with ExitStack() as stack:
        if hasattr(masks, packed):
            stack.callback(setattr, masks, packed, getattr(masks, packed))
            setattr(masks, packed, lambda *_, **__: None)
        if output is not None and not hasattr(output, "image_outputs"):
            stack.callback(delattr, output, "image_outputs")
            output.image_outputs = None
        yield
