"""verl and VeRL-Omni: their call shapes, their keys, their divisors; beside the real counter where it is installed."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ullage.adapters import verl_omni
from ullage.adapters.meter import Meter
from ullage.adapters.verl import FlopsCounter, allgather_seqlens, metrics, mfu
from ullage.models import diffusion

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip
TRAINED = {4: 34560, 3: 25632}  # as in the meter's own tests
QWEN = {
    "patch_size": 2, "in_channels": 64, "out_channels": 16, "num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 3,
    "joint_attention_dim": 40,
}  # fmt: skip
VISION = {
    "depth": 2, "embed_dim": 16, "num_heads": 2, "hidden_size": 24, "mlp_ratio": 2, "patch_size": 2, "temporal_patch_size": 2,
    "spatial_merge_size": 2, "in_channels": 3,
}  # fmt: skip
SEEING: dict[str, Any] = {
    "model_type": "qwen2_vl", "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 32, "vocab_size": 10, "vision_config": VISION,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_overrides(monkeypatch):
    for name in ("ULLAGE_PEAK_TFLOPS", "ULLAGE_GPU_ALIAS", "VERL_OMNI_DEVICE_FLOPS_TFLOPS"):
        monkeypatch.delenv(name, raising=False)
    verl_omni._peak.cache_clear()


# verl


def test_the_counter_returns_achieved_and_promised_tflops():
    achieved, promised = FlopsCounter(TINY, gpu="H100 SXM").estimate_flops([4, 3], 2.0, images_seqlens=None)
    assert achieved * 1e12 == pytest.approx((TRAINED[4] + TRAINED[3]) / 2)
    assert promised == pytest.approx(989.4, rel=1e-4)


def test_a_configuration_of_transformers_is_read():
    config = SimpleNamespace(to_dict=lambda: TINY)
    assert FlopsCounter(config).estimate_flops([4], 1.0)[0] * 1e12 == pytest.approx(TRAINED[4])


@pytest.mark.parametrize("images", [{"images_seqlens": [16, 16, 24]}, {"image_grid_thw": [(2, 4, 4), (1, 4, 6)]}])
def test_frames_of_images_are_counted_by_the_tower(images):
    counter = FlopsCounter(SEEING)
    text = counter.estimate_flops([30], 1.0)[0]
    e, f, h, merged = 16, 32, 24, 4 * 16
    patches, pairs = 56, 2 * 16**2 + 24**2
    tower = patches * (3 * 8 * e + 2 * (4 * e * e + 2 * e * f)) + patches // 4 * (merged * merged + merged * h)
    expected = 3 * (2 * tower + 2 * 4 * e * pairs)
    assert (counter.estimate_flops([30], 1.0, **images)[0] - text) * 1e12 == pytest.approx(expected)


def test_images_of_a_model_that_does_not_see_cost_nothing():
    assert FlopsCounter(TINY).estimate_flops([4], 1.0, images_seqlens=[16])[0] * 1e12 == pytest.approx(TRAINED[4])


def test_an_unknown_architecture_is_nan_and_said(caplog):
    achieved, promised = FlopsCounter({"model_type": "nobody"}, gpu="H100 SXM").estimate_flops([4], 1.0)
    assert math.isnan(achieved) and math.isnan(promised)
    assert "MFU will be NaN: no formula for the architecture 'nobody'" in caplog.text


@pytest.mark.parametrize(("lengths", "seconds"), [([-1], 1.0), ([4], 0.0)])
def test_a_step_that_cannot_be_is_nan(lengths, seconds):
    achieved, promised = FlopsCounter(TINY, peak_tflops=1.0).estimate_flops(lengths, seconds)
    assert math.isnan(achieved)
    assert promised == 1.0


def test_without_a_gpu_nothing_is_promised():
    assert math.isnan(FlopsCounter(TINY).estimate_flops([4], 1.0)[1])


def test_the_keys_are_those_of_the_trainers():
    assert metrics(800.0, 100.0, world=16) == {"perf/mfu/actor": 0.5}
    assert metrics(800.0, 100.0, world=16, role="critic") == {"perf/mfu/critic": 0.5}
    # what only infers did a third of what training on it would be
    assert metrics(1200.0, 100.0, world=8, forward_only=True) == {"perf/mfu/actor_infer": 0.5}


def test_forward_only_divided_by_three_is_the_forward_pass():
    estimated, _ = FlopsCounter(TINY, peak_tflops=1.0).estimate_flops([4, 3], 1.0)
    assert mfu(estimated, 1.0, forward_only=True) * 1e12 == pytest.approx(Meter(TINY).flops([4, 3], forward_only=True))


def test_alone_a_rank_gathers_its_own_lengths():
    assert allgather_seqlens([4, 3]) == [4, 3]


def test_an_estimate_takes_microseconds():
    # measured: 5 µs (verl) and 15 µs (VeRL-Omni) with 32 sequences; the limit is loose, for machines that are shared
    language, images = FlopsCounter(TINY, peak_tflops=1.0), verl_omni.DiffusionFlopsCounter("QwenImagePipeline", QWEN, 1.0)
    lengths, prompts = list(range(100, 132)), list(range(1, 33))
    for call in (lambda: language.estimate_flops(lengths, 1.0), lambda: images.estimate_flops(lengths, prompts, 1.0)):
        rounds = []
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(50):
                call()
            rounds.append((time.perf_counter() - start) / 50)
        assert min(rounds) < 100e-6


# VeRL-Omni


def test_the_names_are_those_of_verl_omni():
    assert verl_omni.register_diffusion_architecture is diffusion.register_diffusion_architecture
    assert issubclass(verl_omni.QwenImageFlops, verl_omni.DiffusionModelFlops)


def test_the_peak_is_asked_for_in_order(monkeypatch):
    assert math.isnan(verl_omni.get_device_peak_tflops())  # no GPU here
    monkeypatch.setenv("ULLAGE_PEAK_TFLOPS", "bf16=312")
    assert verl_omni.get_device_peak_tflops() == 312
    monkeypatch.setenv("VERL_OMNI_DEVICE_FLOPS_TFLOPS", "989")
    assert verl_omni.get_device_peak_tflops() == 989


@pytest.mark.parametrize("given", ["many", "-1", "fp8=1979", "  "])
def test_an_override_that_is_no_peak_is_passed_over(monkeypatch, given):
    monkeypatch.setenv("VERL_OMNI_DEVICE_FLOPS_TFLOPS", given)
    monkeypatch.setenv("ULLAGE_PEAK_TFLOPS", "312")
    assert verl_omni.get_device_peak_tflops() == 312


def test_overrides_that_are_no_peaks_end_no_run(monkeypatch):
    monkeypatch.setenv("ULLAGE_PEAK_TFLOPS", "many")
    assert math.isnan(verl_omni.get_device_peak_tflops())


def test_the_counter_has_this_devices_peak(monkeypatch):
    monkeypatch.setenv("VERL_OMNI_DEVICE_FLOPS_TFLOPS", "989")
    counter = verl_omni.DiffusionFlopsCounter("QwenImagePipeline", QWEN)
    estimated, promised = counter.estimate_flops([12], [5], 1.0, num_timesteps=10, num_forward_passes=2)
    assert (promised, counter.peak()) == (989.0, 989.0)
    assert estimated == diffusion.DiffusionFlopsCounter("QwenImagePipeline", QWEN).estimate_flops([12], [5], 0.05)[0]


def test_without_a_peak_the_mfu_is_nan_and_not_zero():
    estimated, promised = verl_omni.DiffusionFlopsCounter("QwenImagePipeline", QWEN).estimate_flops([12], [5], 1.0)
    assert math.isnan(mfu(estimated, promised))


def test_a_step_that_cannot_be_counted_is_nan_and_said_once(caplog):
    counter = verl_omni.DiffusionFlopsCounter("QwenImagePipeline", QWEN, 1.0)
    for _ in range(2):
        estimated, promised = counter.estimate_flops([], [], 1.0)
        assert math.isnan(estimated)
        assert promised == 1.0
    assert caplog.text.count("no latents to count") == 1


def test_unequal_samples_are_summed_as_one_by_one():
    counter = diffusion.QwenImageFlops(QWEN)
    both = [(4096, 128), (1024, 7), (64, 1), (12, 5)]
    assert counter.flops(*zip(*both, strict=True)) == sum(counter.flops([i], [p]) for i, p in both)


@pytest.mark.parametrize("image", [{}, {"image_dim": 40, "added_kv_proj_dim": 48}])
def test_wan_is_summed_as_one_by_one(image):
    # with an image embedder a prompt of more than 512 tokens ends in the image's: no polynomial
    config = {
        "num_layers": 2,
        "attention_head_dim": 16,
        "num_attention_heads": 3,
        "ffn_dim": 96,
        "in_channels": 16,
        "patch_size": [1, 2, 2],
    }
    counter = diffusion.FamilyFlops({**config, **image}, "WanPipeline")
    both = [(4096, 513), (1024, 769), (64, 600)]
    assert counter.flops(*zip(*both, strict=True)) == sum(counter._of(i, p) for i, p in both)


def test_gathered_alone_the_lengths_stay(monkeypatch):
    meta = {"latent_seqlens": [4096], "prompt_seqlens": [], "num_timesteps": 10, "num_forward_passes": 2}
    assert verl_omni.allgather_diffusion_flops_meta(meta) == {**meta, "prompt_seqlens": [0]}


# Beside verl itself


@pytest.fixture
def theirs():
    return pytest.importorskip("verl.utils.flops_counter", reason="verl is not installed: pip install verl", exc_type=ImportError)


def test_the_call_is_that_of_verl(theirs):
    given = inspect.signature(theirs.FlopsCounter.estimate_flops).parameters
    ours = inspect.signature(FlopsCounter.estimate_flops).parameters
    assert [(p.name, p.kind) for p in given.values()] == [(p.name, p.kind) for p in ours.values()]


def test_verl_differs_by_the_embedding_and_half_the_diagonal(theirs, monkeypatch):
    monkeypatch.setattr(theirs, "get_device_flops", lambda: 989.0)
    config = SimpleNamespace(**{**TINY, "num_key_value_heads": 2})
    verl = theirs.FlopsCounter(config).estimate_flops([4, 3], 1.0)[0] * 1e12
    ours = FlopsCounter({**TINY, "num_key_value_heads": 2}).estimate_flops([4, 3], 1.0)[0] * 1e12
    # theirs: 6 × 80 for each of 7 look-ups, and s²/2 pairs (12.5) for s(s+1)/2 (16), of 3 × 64 FLOPs each
    assert verl - ours == pytest.approx(6 * 80 * 7 - 3 * 64 * (16 - 12.5))


def test_verl_takes_it_from_its_own_variable(theirs):
    code = "import verl.utils.flops_counter as c; print(c.FlopsCounter.__module__)"
    run = subprocess.run([sys.executable, "-c", code], env={**_environment(), "VERL_USE_EXTERNAL_MODULES": "ullage.adapters.verl_plugin"},
                         capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
    assert run.stdout.split()[-1] == "ullage.adapters.verl"


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
