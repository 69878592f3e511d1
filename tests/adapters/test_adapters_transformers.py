"""The Trainer of transformers, for real: a tiny model on the CPU, its log, its reporters."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ullage[trainers]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ullage[trainers]'")
pytest.importorskip("accelerate", reason="accelerate, which the Trainer needs, is not installed: pip install 'ullage[trainers]'")

from ullage.adapters.meter import Meter  # noqa: E402
from ullage.adapters.transformers import MfuCallback  # noqa: E402
from ullage.models.passes import Training  # noqa: E402

TRAINED = {4: 34560, 3: 25632}  # FLOPs of training on a sequence of so many tokens, as in the meter's own tests
LENGTHS = [4, 3, 4, 3, 4, 3, 4, 3]


class Reporter(transformers.TrainerCallback):
    """What TensorBoard would see."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def on_log(self, args, state, control, logs=None, **other):
        self.seen.append(dict(logs))


def model(**more: Any) -> Any:
    fields = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 16}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=10, max_position_embeddings=64, **fields, **more))


def rows() -> list[dict[str, Any]]:
    ids = torch.ones(4, dtype=torch.long)
    return [{"input_ids": ids, "labels": ids, "attention_mask": (torch.arange(4) < length).long()} for length in LENGTHS]


def trainer(folder: Any, trained: Any = None, **arguments: Any) -> Any:
    given = {
        "output_dir": str(folder), "per_device_train_batch_size": 2, "max_steps": 4, "logging_steps": 2, "report_to": [], "use_cpu": True,
        "disable_tqdm": True, "save_strategy": "no", **arguments,
    }  # fmt: skip
    settings = transformers.TrainingArguments(**given)
    data = rows()
    return transformers.Trainer(model=trained or model(), args=settings, train_dataset=data, eval_dataset=data, callbacks=[Reporter()])


def losses(run: Any) -> list[dict[str, Any]]:
    return [line for line in run.state.log_history if "loss" in line]


def reported(run: Any) -> list[dict[str, Any]]:
    reporter = next(c for c in run.callback_handler.callbacks if isinstance(c, Reporter))
    return [line for line in reporter.seen if "loss" in line]


def flops(callback: MfuCallback, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return where the FLOPs of each log will stand: the model's, the executed ones."""
    from ullage.adapters.torch import TorchMeter

    counted: list[tuple[int, int]] = []
    together = TorchMeter.together

    def spy(self: Any, flops: int, executed: int, *others: Any) -> Any:
        counted.append((flops, executed))
        return together(self, flops, executed, *others)

    monkeypatch.setattr(TorchMeter, "together", spy)
    return counted


def test_the_log_shows_mfu_beside_the_loss_to_every_reporter(tmp_path):
    run = trainer(tmp_path)
    MfuCallback.attach(run, peak_tflops=1.0)
    run.train()
    assert len(losses(run)) == 2
    for line in losses(run) + reported(run):
        assert 0 < line["mfu"] < 1
        assert line["mfu"] == pytest.approx(line["tflops_per_gpu"])
        assert line["hfu"] > line["mfu"]  # every batch has a sequence of 3 tokens, padded to 4


def test_it_is_a_callback_like_others_too(tmp_path):
    run = trainer(tmp_path)
    run.add_callback(MfuCallback(peak_tflops=1.0))
    run.train()
    assert [line["mfu"] > 0 for line in losses(run)] == [True, True]


def test_true_lengths_and_all_micro_batches_are_counted(tmp_path, monkeypatch):
    run = trainer(tmp_path, gradient_accumulation_steps=2)
    counted = flops(MfuCallback.attach(run, peak_tflops=1.0), monkeypatch)
    run.train()
    # 2 steps × 2 micro-batches × (one sequence of 4 tokens, one of 3), whatever the order
    drawn = [sum(pair) for pair in counted]
    assert len(drawn) == 2
    assert sum(flops for flops, _ in counted) == 8 * (TRAINED[4] + TRAINED[3])
    assert sum(executed for _, executed in counted) == 16 * TRAINED[4]


def test_evaluations_and_checkpoints_are_neither_counted_nor_timed(tmp_path, monkeypatch):
    run = trainer(tmp_path, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, logging_steps=1)
    clock = iter(range(1, 1000))
    callback = MfuCallback.attach(run, peak_tflops=1.0, clock=lambda: float(next(clock)))
    counted = flops(callback, monkeypatch)
    run.train()
    assert [executed for _, executed in counted] == [2 * TRAINED[4]] * 4
    # the clock is read at the start of each step and at its end: 1 s each
    assert [line["tflops_per_gpu"] * 1e12 for line in losses(run)] == [pytest.approx(flops) for flops, _ in counted]


def test_gradient_checkpoints_are_in_the_hfu_alone(tmp_path, monkeypatch):
    run = trainer(tmp_path, gradient_checkpointing=True)
    counted = flops(MfuCallback.attach(run, peak_tflops=1.0), monkeypatch)
    run.train()
    # of a sequence's forward pass all is done again but the head (640) and each layer's last product (2 × 4 × 2 × 8 × 16)
    again = TRAINED[4] // 3 - 4 * 2 * 80 - 2 * 4 * 2 * 8 * 16
    assert sum(executed for _, executed in counted) == 8 * (TRAINED[4] + again)
    assert sum(flops for flops, _ in counted) == 4 * (TRAINED[4] + TRAINED[3])


def test_lora_of_peft_is_counted_with_its_exact_backward(tmp_path, monkeypatch):
    peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install 'ullage[trainers]'")
    run = trainer(tmp_path, peft.get_peft_model(model(), peft.LoraConfig(r=2, target_modules="all-linear")))
    counted = flops(MfuCallback.attach(run, peak_tflops=1.0), monkeypatch)
    run.train()
    exact = Meter(model().config, training=Training(lora_rank=2))
    assert sum(flops for flops, _ in counted) == exact.flops([4, 3] * 4) != 4 * (TRAINED[4] + TRAINED[3])


def test_an_unknown_model_is_said_and_the_training_goes_on(tmp_path, caplog):
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, input_ids, labels=None, attention_mask=None):
            return {"loss": self.layer(input_ids.float()[..., None]).mean()}

    run = trainer(tmp_path, Own())
    MfuCallback.attach(run)
    run.train()
    assert run.state.global_step == 4
    assert "this training has no MFU: a Own has no config" in caplog.text
    assert "mfu" not in losses(run)[0]


def test_the_hook_is_gone_after_the_training(tmp_path):
    run = trainer(tmp_path)
    MfuCallback.attach(run, peak_tflops=1.0)
    run.train()
    assert not run.model._forward_pre_hooks
