"""The check of training steps: the decoder against the ledger where PyTorch is installed, the arithmetic on a simulated GPU."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from gpu.check import CHECKS, NotMeasured, checks
from gpu.load import SustainedWork
from gpu.step import AHEAD, BATCH, CONFIG, LENGTH, METERED, VARIANTS, counted, decoder, ledger, repeated, stepper, trial, trials

from gpu import step as step_module
from tests.gpu import gpu_double
from tests.gpu.gpu_double import SHARE, World
from tests.gpu.test_gpu_load import Clock, Torch
from tests.live.nvml_double import Gpu

checks()  # registers them
TINY = {
    **CONFIG, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 40,
    "vocab_size": 50,
}  # fmt: skip
ROWS, TOKENS = 2, 7
NAMES = [variant.name for variant in VARIANTS]
PLAIN = VARIANTS[0]
variants = pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)


def found(world, **changes):
    """Return what the check finds; `changes` are made to every trial."""

    class Changed(type(world)):
        def trials(self, variant):
            return _changed(super().trials(variant), changes)

    world.__class__ = Changed
    return CHECKS["model_step"].function(world.machine())


class _changed:
    def __init__(self, context, changes):
        self.context, self.changes = context, changes

    def __enter__(self):
        trial = self.context.__enter__()
        for name, change in self.changes.items():
            setattr(trial, name, change(getattr(trial, name)))
        return trial

    def __exit__(self, *error):
        return self.context.__exit__(*error)


# --- the ledger of the step ---


def test_the_forward_pass_is_what_llamas_plan_says():
    # 2 T [L (2·h·h + 2·h·1024 + 3·h·i) + V h] + 4 h L pairs, pairs = 4 · 4096 · 4097 / 2
    h, i, tokens = 4096, 14336, 4 * 4096
    products = 2 * tokens * (4 * (2 * h * h + 2 * h * 1024 + 3 * h * i) + 32000 * h)
    assert ledger(VARIANTS[-1]).executed == products + 4 * h * 4 * 4 * 4096 * 4097 // 2
    assert ledger(PLAIN).training == ledger(PLAIN).executed == 3 * ledger(VARIANTS[-1]).executed


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def tiny(torch, variant):
    """Return the tiny decoder, a batch for it, and its step."""
    torch.manual_seed(0)
    model = decoder(torch, TINY, variant.training)
    ids, labels = (torch.randint(TINY["vocab_size"], (ROWS, TOKENS)) for _ in range(2))
    return model, ids, stepper(torch, model, variant.training, ids, labels)


@variants
def test_a_traced_step_costs_what_the_ledger_says_to_the_integer(torch, variant):
    from ullage.models.tracing.counter import counted as traced

    model, _, step = tiny(torch, variant)
    assert traced(step, model).total == ledger(variant, TINY, ROWS, TOKENS, "full").executed


@variants
def test_torchs_own_counter_sees_the_forward_pass_but_for_attention_on_a_cpu(torch, variant):
    model, ids, _ = tiny(torch, variant)
    assert counted(torch, model, ids) == booked_by_torch(variant)


def booked_by_torch(variant):
    """Return the ledger's forward pass without attention (layers × 4 × width × pairs), for which the counter's rule for a CPU gives 0."""
    return ledger(variant, TINY, ROWS, TOKENS, "full").forward - 3 * 4 * 24 * ROWS * TOKENS**2


@variants
def test_torch_meter_sees_how_the_decoder_trains(torch, variant):
    from ullage.adapters.torch import TorchMeter

    model, ids, step = tiny(torch, variant)
    booked = ledger(variant, TINY, ROWS, TOKENS)
    forward_only = variant.training.forward_only
    seconds = iter([1.0, 2.0])
    with TorchMeter(model, peak_tflops=1e-3, clock=lambda: next(seconds)).measure({"input_ids": ids}, forward_only=forward_only) as window:
        step()
    assert window.measured.flops == booked.training
    assert window.measured.mfu == pytest.approx(booked.training / 1e9)
    assert window.measured.hfu == pytest.approx(booked.executed / 1e9)


def test_all_variants_compute_the_same_loss_and_train(torch):
    # checkpoints change what is kept, not what is computed; LoRA's adapters and no step at all give other losses
    losses = {}
    for variant in VARIANTS:
        _, _, step = tiny(torch, variant)
        losses[variant.name] = [float(step()) for _ in range(20)]
    plain = losses["training"]
    assert losses["checkpoints"] == pytest.approx(plain) == losses["reentrant checkpoints"]
    assert plain[-1] < plain[0] and losses["LoRA"][-1] < losses["LoRA"][0]
    assert len(set(losses["forward only"])) == 1 and losses["forward only"][0] == pytest.approx(plain[0])


def test_with_adapters_nothing_else_trains(torch):
    model, _, _ = tiny(torch, VARIANTS[3])
    assert all((".lora_" in name) == weight.requires_grad for name, weight in model.named_parameters())


class Timed:
    """PyTorch with a GPU made of the CPU: events are readings of its clock."""

    class cuda:
        empty_cache = synchronize = staticmethod(lambda: None)
        mem_get_info = staticmethod(lambda: (80e9, 80e9))

        class Event:
            def __init__(self, enable_timing, blocking=False):
                self.time = None

            def record(self):
                self.time = time.perf_counter()

            def synchronize(self):
                pass

            def elapsed_time(self, later):
                return 1000 * (later.time - self.time)

    def __init__(self, torch):
        self.torch = torch

    def __getattr__(self, name):
        return getattr(self.torch, name)


@variants
def test_a_trial_meters_counts_and_then_repeats_steps(torch, variant):
    booked = ledger(variant, TINY, ROWS, TOKENS)
    with trial(Timed(torch), variant, TINY, ROWS, TOKENS, "cpu") as found:
        while len(found.work.bursts) < 3:
            threading.Event().wait(0.001)
    assert found.work.flops == booked.executed and found.work.failure is None
    assert found.metered.flops == METERED * booked.training and found.metered_seconds > 0
    assert found.counted == booked_by_torch(variant)


def test_a_loss_that_is_no_number_is_refused(torch, monkeypatch):
    nan = torch.tensor(float("nan"))
    monkeypatch.setattr(step_module, "stepper", lambda *_: lambda: nan)
    with pytest.raises(ArithmeticError, match="the loss of 'training' is nan"), trial(Timed(torch), PLAIN, TINY, ROWS, TOKENS, "cpu"):
        pass


# --- steps in a row ---


def go(torch, seconds=0.2, steps=4):
    """Return the work of steps that take so long on the stand-in's GPU."""
    work, clock = SustainedWork(1, "bfloat16", 10.0), Clock(torch)

    def step():
        if torch.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        torch.time += seconds
        torch.queue()

    with repeated(torch, step, work, clock):
        while len(work.bursts) < steps and work.failure is None:
            threading.Event().wait(0.001)
    return work


def test_steps_follow_each_other_without_a_gap_and_few_are_queued():
    torch = Torch()
    work = go(torch)
    assert work.bursts[0][0] == 1000.0 and len(work.bursts) >= 4
    assert all(end - begin == pytest.approx(0.2) for begin, end in work.bursts)
    assert all(a[1] == b[0] for a, b in zip(work.bursts, work.bursts[1:], strict=False))
    assert torch.most_queued == AHEAD + 1 and torch.queued == 0, "every step that was begun is waited for"
    assert work.flops_between(1000.1, 1000.4) == pytest.approx(15)


def test_what_a_step_raises_is_raised_here_and_the_body_does_not_run():
    torch, work = Torch(fails=True), SustainedWork(1, "bfloat16", 10.0)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        go(torch)
    with pytest.raises(ZeroDivisionError), repeated(torch, lambda: 1 / 0, work, Clock(torch)):
        pytest.fail("the body ran")


# --- the check ---


@pytest.fixture(scope="module")
def findings():
    """What the check finds in the world as we think it is."""
    return found(World())


def test_ofu_is_hfu_where_the_world_is_as_we_think(findings):
    # every active tensor cycle does 132 × 4096 FLOPs, so OFU is HFU: 0.7 × 1350 / 1830 = 0.516
    assert not findings.wrong and [row["variant"] for row in findings.rows] == NAMES
    for row, variant in zip(findings.rows, VARIANTS, strict=True):
        booked = ledger(variant)
        assert row["hfu"] == pytest.approx(SHARE * 1350 / 1830, abs=0.02)
        assert row["mfu"] / row["hfu"] == pytest.approx(booked.training / booked.executed)
        assert row["step_seconds"] == pytest.approx(booked.executed / (SHARE * 1350e6 * 132 * 4096), rel=0.02)
    assert findings.answers["exact_error"] < 0.005 and findings.answers["sampled_error"] < 0.02
    assert findings.answers["counter_error"] == 0 and findings.answers["meter_error"] < 1e-9


def test_flash_attention_may_add_one_point_of_ofu_and_less_forward_only(findings):
    # attention forward is 4 · 4096 · 4 · 4 · 4096 · 4097 / 2 = 2.2e12 of 35.1e12, scores half of it: training does those again
    # (1.1e12 of 105e12) and 127/4097 more of 3.5 times 2.2e12: 1.27 %; forward only 127/4097 of 2.2e12: 0.19 %
    rows = {row["variant"]: row["flash"] / row["hfu"] for row in findings.rows}
    assert rows["training"] == pytest.approx(0.0127, abs=0.0001) and rows["forward only"] == pytest.approx(0.0019, abs=0.0001)
    assert findings.answers["flash"] == max(row["flash"] for row in findings.rows) < 0.02


def test_ofu_that_is_not_hfu_fails_the_check(monkeypatch):
    monkeypatch.setattr(gpu_double, "FLOPS_PER_CYCLE", 2048)  # as if the peak were taken twice too high
    wrong = found(World()).wrong
    assert len(wrong) == 10 and wrong[0].startswith("sampled OFU of 'training' is 0.5"), wrong


def test_an_hfu_above_one_fails_the_check(monkeypatch):
    monkeypatch.setattr(gpu_double, "FLOPS_PER_CYCLE", 16384)
    assert found(World()).wrong[0].startswith("HFU of 'training' is 2.0")


def test_a_counter_that_disagrees_fails_the_check():
    assert found(World(), counted=lambda flops: flops + 2).wrong == ["PyTorch counts 2 FLOPs more in a forward pass than the ledger"]
    assert found(World(), counted=lambda flops: None).answers["counter_error"] is None


def test_a_meter_that_does_not_wait_for_the_gpu_fails_the_check():
    findings = found(World(), metered=lambda told: told._replace(mfu=told.mfu * 2))
    assert findings.answers["meter_error"] == pytest.approx(1) and findings.wrong == [
        "TorchMeter is 100.0% off the ledger over CUDA events"
    ]
    assert found(World(), metered=lambda told: told._replace(mfu=None, hfu=None)).answers["meter_error"] is None


def test_without_cycle_counters_the_sampled_ofu_is_left():
    answers = found(World(Gpu("GPU-1", old_driver=True))).answers
    assert answers["exact_error"] is None and answers["sampled_error"] < 0.02


def test_without_pytorch_or_with_an_old_one_nothing_is_measured():
    machine = World().machine(loaded=False)
    with pytest.raises(NotMeasured, match="no PyTorch"):
        trials(machine)
    with pytest.raises(NotMeasured, match=r"older than 2\.4"):
        trials(replace(machine, find_torch=lambda: type("Old", (), {"nn": object()})))


def test_a_gpu_with_too_little_free_memory_is_not_measured():
    class Small(Torch):
        def __init__(self):
            super().__init__()
            self.cuda.empty_cache, self.cuda.mem_get_info = (lambda: None), (lambda: (24e9, 24e9))

    with pytest.raises(NotMeasured, match="24 GB of the GPU's memory are free"), trial(Small(), PLAIN):
        pass


def test_a_step_takes_a_tenth_to_a_third_of_a_second_on_a_gpu_at_half_its_peak():
    assert BATCH * LENGTH == 16384
    for variant in VARIANTS[:3]:
        assert 0.1 < ledger(variant).executed / (989.4e12 / 2) < 0.33
