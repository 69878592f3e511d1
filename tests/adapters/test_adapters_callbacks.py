"""Callbacks of Megatron-Bridge, torchtitan, NeMo and Ray Train: counted by hand, and by the real package where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ullage.adapters.megatron_bridge import MfuCallback as BridgeCallback
from ullage.adapters.ray_train import MfuCallback as RayCallback
from ullage.adapters.torchtitan import MfuCallback as TitanCallback
from ullage.trainlogs.log import read_log

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip
TRAINED = {4: 34560, 3: 25632}  # FLOPs of training on a sequence of so many tokens, as in the meter's own tests


def ticks() -> Any:
    seconds = iter(range(1, 10_000))
    return lambda: float(next(seconds))


class Written:
    """A SummaryWriter, W&B run or MLflow client that keeps what it is told, by step."""

    def __init__(self) -> None:
        self.told: dict[int, dict[str, float]] = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.setdefault(step, {})[name] = value

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.told.setdefault(step, {}).update(metrics)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.log(metrics, step)


# --- Megatron-Bridge ---


class Events:
    """What runs callbacks, where Megatron-Bridge is not there to do it."""

    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def fire(self, name: str, context: Any) -> None:
        getattr(self.callback, name, lambda _: None)(context)


def bridge_state() -> Any:
    cfg = SimpleNamespace(model=SimpleNamespace(seq_length=4), logger=SimpleNamespace(log_interval=2))
    done = SimpleNamespace(step=0, consumed_train_samples=0)
    return SimpleNamespace(cfg=cfg, train_state=done, tensorboard_logger=Written(), wandb_logger=Written(), mlflow_logger=Written())


def bridge_run(manager: Any, state: Any, batches: list[int], skipped: tuple[int, ...] = ()) -> None:
    """Train as megatron/bridge/training/train.py does: the step and its samples are booked after its last event."""
    context = SimpleNamespace(state=state, model=[], user_state={})
    manager.fire("on_train_start", context)
    for number, batch in enumerate(batches):
        if number not in skipped:
            manager.fire("on_train_step_start", context)
            manager.fire("on_train_step_end", context)
        state.train_state.step += 1
        state.train_state.consumed_train_samples += batch
        manager.fire("on_eval_start", context)
    manager.fire("on_train_end", context)


def bridge_logged(manager: Any, state: Any, batches: list[int], **more: Any) -> dict[int, float]:
    """Return by step the FLOPs a second that the run's loggers were told, all three alike."""
    bridge_run(manager, state, batches, **more)
    loggers = [state.tensorboard_logger.told, state.wandb_logger.told, state.mlflow_logger.told]
    assert loggers[0] == loggers[1] == loggers[2]
    assert all(line["ullage/mfu"] == pytest.approx(line["ullage/tflops_per_gpu"] / 1e-3) for line in loggers[0].values())
    return {step: line["ullage/tflops_per_gpu"] * 1e12 for step, line in loggers[0].items()}


def test_megatron_bridge_counts_the_samples_that_were_consumed():
    callback = BridgeCallback(TINY, peak_tflops=1e-3, clock=ticks())
    # each step lasts 1 s of this clock; batches grow (ramp-up); a line every 2 steps
    told = bridge_logged(Events(callback), bridge_state(), [2, 2, 4, 4, 8])
    assert told == {2: pytest.approx(2 * TRAINED[4]), 4: pytest.approx(4 * TRAINED[4])}


def test_megatron_bridges_packed_sequences_are_told_by_a_function():
    callback = BridgeCallback(TINY, peak_tflops=1e-3, clock=ticks(), lengths=lambda context: [3, 3])
    assert bridge_logged(Events(callback), bridge_state(), [1, 1]) == {2: pytest.approx(2 * TRAINED[3])}


def test_samples_that_were_skipped_are_not_trained_on():
    callback = BridgeCallback(TINY, peak_tflops=1e-3, clock=ticks())
    # step 2 is skipped: the line at step 2 is left out, that at step 4 is of steps 3 and 4
    told = bridge_logged(Events(callback), bridge_state(), [2, 2, 2, 2], skipped=(1,))
    assert told == {4: pytest.approx(2 * TRAINED[4])}


def test_an_unknown_model_and_a_logger_that_fails_end_no_training(caplog):
    bridge_run(Events(BridgeCallback({"model_type": "nobody"})), bridge_state(), [1, 1])
    assert "this training has no MFU" in caplog.text
    state = bridge_state()
    state.wandb_logger = SimpleNamespace()
    bridge_run(Events(BridgeCallback(TINY, clock=ticks())), state, [1] * 4)
    assert caplog.text.count("metrics could not be logged") == 1


def real_bridge_callbacks() -> ModuleType:
    """Return Megatron-Bridge's own module of callbacks, read from its file: the package itself needs Transformer Engine."""
    try:
        found = [file for file in files("megatron-bridge") or [] if str(file).endswith("bridge/training/callbacks.py")]
    except PackageNotFoundError:
        found = []
    if not found:
        pytest.skip("megatron-bridge with callbacks is not installed: pip install --no-deps megatron-bridge")
    spec = importlib.util.spec_from_file_location("megatron_bridge_callbacks", Path(str(found[0].locate())))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_megatron_bridges_own_manager_runs_the_callback():
    real = real_bridge_callbacks()
    manager = real.normalize_callbacks([BridgeCallback(TINY, peak_tflops=1e-3, clock=ticks())])
    for event in ("on_train_start", "on_train_step_start", "on_train_step_end", "on_train_end"):
        assert real.should_fire(manager, event), event
    assert bridge_logged(manager, bridge_state(), [2, 2]) == {2: pytest.approx(2 * TRAINED[4])}


# --- torchtitan ---


def array(*rows: list[int]) -> Any:
    import numpy as np

    return np.array(rows)


def titan(log: Any, **more: Any) -> Any:
    """Return what a torchtitan Trainer has, as far as it matters here."""
    return SimpleNamespace(
        parallel_dims=SimpleNamespace(non_data_parallel_size=2),
        metrics_processor=SimpleNamespace(log=log),
        forward_backward_step=lambda *, input_dict, labels, global_valid_tokens: 0.0,
        **more,
    )


def titan_train(trainer: Any, ids: Any, steps: int, log_every: int = 2) -> None:
    for step in range(1, steps + 1):
        batch = {"input": ids, "positions": array([0, 1, 2, 3], [0, 1, 2, 3])}
        trainer.forward_backward_step(input_dict=batch, labels=None, global_valid_tokens=8)
        trainer.forward_backward_step(input_dict=[batch], labels=[None], global_valid_tokens=8)
        if step % log_every == 0:
            trainer.metrics_processor.log(step, 2.0, 2.0, 1.0, extra_metrics={"lr": 0.1})
            if getattr(trainer, "validator", None):
                trainer.validator.validate([], step)


def test_torchtitan_logs_ours_beside_its_own():
    told: list[Any] = []
    trainer = titan(lambda step, loss, most, norm, extra_metrics=None: told.append((step, extra_metrics)))
    TitanCallback.attach(trainer, TINY, peak_tflops=1e-3, clock=ticks())
    titan_train(trainer, array([1] * 4, [1] * 4), 4)
    # 2 steps of 2 micro-batches of 2 sequences of 4 tokens in 1 s of this clock, and 2 ranks share them
    flops = 8 * TRAINED[4] / 2
    assert [step for step, _ in told] == [2, 4]
    for _, extra in told:
        assert extra == {"lr": 0.1, "ullage/tflops_per_gpu": pytest.approx(flops / 1e12), "ullage/mfu": pytest.approx(flops / 1e9)}


def test_torchtitans_documents_in_one_sequence_do_not_see_each_other():
    callback = TitanCallback.attach(trainer := titan(lambda step, *others, extra_metrics=None: None), TINY, clock=ticks())
    trainer.forward_backward_step(
        input_dict={"input": array([1] * 7), "positions": array([0, 1, 2, 3, 0, 1, 2])}, labels=None, global_valid_tokens=7
    )
    assert callback.window is not None and callback.window.end().flops == TRAINED[4] + TRAINED[3]


def test_torchtitans_validation_is_not_timed():
    told: list[Any] = []
    validator = SimpleNamespace(validate=lambda parts, step: None)
    trainer = titan(lambda step, *others, extra_metrics=None: told.append(extra_metrics), validator=validator)
    TitanCallback.attach(trainer, TINY, clock=ticks())
    titan_train(trainer, array([1] * 4, [1] * 4), 4)
    # the first line is of 1 s; of the second, 1 s up to the validation, and 1 s after it
    rates = [extra["ullage/tflops_per_gpu"] * 1e12 for extra in told]
    assert rates == [pytest.approx(4 * TRAINED[4]), pytest.approx(2 * TRAINED[4])]


def test_torchtitan_with_an_unknown_model_trains_as_it_did(caplog):
    trainer = titan(log := lambda step, *others, extra_metrics=None: None)
    TitanCallback.attach(trainer, {"model_type": "nobody"})
    assert trainer.metrics_processor.log is log and "this training has no MFU" in caplog.text


@pytest.mark.full
def test_torchtitans_own_metrics_show_it_in_tensorboard(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ullage[trainers]'")
    metrics = pytest.importorskip("torchtitan.components.metrics", reason="torchtitan is not installed: pip install torchtitan")
    memory = SimpleNamespace(device_name="H100", reset_peak_stats=lambda: None, get_peak_stats=lambda: metrics.DeviceMemStats(*[0] * 6))
    monkeypatch.setattr(metrics, "build_device_memory_monitor", lambda: memory)  # a CPU has none
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        dims = SimpleNamespace(non_data_parallel_size=1, pp_enabled=False)
        config = metrics.MetricsProcessor.Config(enable_tensorboard=True, log_freq=2)
        processor = metrics.MetricsProcessor(config, parallel_dims=dims, dump_folder=str(tmp_path))
        processor.num_flops_per_token, processor.ntokens_since_last_log, processor.data_loading_times = 1000, 64, [0.1]
        trainer = titan(None)
        trainer.metrics_processor, trainer.parallel_dims = processor, dims
        TitanCallback.attach(trainer, TINY, peak_tflops=1e-3, clock=ticks())
        ids = torch.ones((2, 4), dtype=torch.long)
        trainer.forward_backward_step(input_dict={"input": ids}, labels=ids, global_valid_tokens=8)
        processor.log(2, 2.0, 2.0, 1.0, extra_metrics={"n_tokens_seen": 8})
        processor.close()
    finally:
        torch.distributed.destroy_process_group()
    (row,) = read_log(str(tmp_path / "tb")).to_pylist()
    assert (row["step"], row["mfu"]) == (2, pytest.approx(2 * TRAINED[4] / 1e9, rel=1e-6))
    assert row["tokens_per_second_per_gpu"] > 0 and row["step_time"] > 0  # torchtitan's own


# --- Ray Train ---


def test_ray_trains_workers_are_logged_with_their_mean():
    run = Written()
    callback = RayCallback(type("Run", (), {"__module__": "tensorboardX.writer", "add_scalar": run.add_scalar, "log": None})())
    callback.after_report(None, [{"mfu": 0.5, "loss": 2.0, "step": 10}, {"mfu": 0.25, "step": 10}], None)
    callback.after_report(None, [{"loss": 2.0}], None)
    callback.after_report(None, [{"mfu": 0.5}, {"loss": 1.0}], None)
    assert run.told == {10: {"ullage/mfu": 0.375}, 3: {"ullage/mfu": 0.5}}


def test_ray_train_without_its_logger_goes_on(caplog):
    callback = RayCallback("nobody")
    for _ in range(2):
        callback.after_report(None, [{"mfu": 0.5}], None)
    assert caplog.text.count("the workers' MFU is not logged") == 1


def _worker(config: dict[str, Any]) -> None:
    import ray.train

    from ullage.adapters.torch import TorchMeter

    rank = ray.train.get_context().get_world_rank()
    meter = TorchMeter(config, peak_tflops=1.0, gather=False, clock=iter(range(1, 100)).__next__)
    for step in (1, 2):
        with meter.measure([4] * (1 + rank)) as window:
            pass
        ray.train.report({"step": step, **window.measured.named()})


@pytest.mark.full
def test_ray_trains_own_workers_report_to_one_log(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: pip install 'ullage[trackers]'")
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[train]'")
    train = pytest.importorskip("ray.train", reason="Ray Train is not installed: pip install 'ray[train]'")
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    try:
        run = train.RunConfig(storage_path=str(tmp_path / "ray"), callbacks=[RayCallback("tensorboard", tmp_path / "log")])
        scaling = train.ScalingConfig(num_workers=2)
        DataParallelTrainer(_worker, train_loop_config=TINY, scaling_config=scaling, run_config=run).fit()
    finally:
        ray.shutdown()
    rows = read_log(str(tmp_path / "log")).to_pylist()
    # of each second by its clock worker 0 trains on one sequence, worker 1 on two: 1.5 on the mean
    assert [(row["step"], row["flops_per_gpu"]) for row in rows] == [(step, pytest.approx(1.5 * TRAINED[4])) for step in (1, 2)]
