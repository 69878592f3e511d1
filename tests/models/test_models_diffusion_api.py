"""The counter of diffusion trainers: its names, its rules, and architectures of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.models import diffusion
from ullage.models.diffusion import (
    DiffusionFlopsCounter,
    DiffusionModelFlops,
    QwenImageFlops,
    collect_diffusion_flops_meta,
    diffusion_architectures,
    get_forward_passes_per_step,
    register_diffusion_architecture,
)

VECTORS = Path(__file__).parents[3] / "shared" / "data" / "flops_vectors.json"

QWEN: dict[str, Any] = {
    "patch_size": 2, "in_channels": 64, "out_channels": 16, "num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 3,
    "joint_attention_dim": 40,
}  # fmt: skip
SD3 = {**QWEN, "in_channels": 16, "caption_projection_dim": 48, "pooled_projection_dim": 28}
FLUX = {**QWEN, "patch_size": 1, "num_single_layers": 1, "pooled_projection_dim": 28}
WAN = {"patch_size": [1, 2, 2], "in_channels": 16, "num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 3, "ffn_dim": 96}


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(diffusion, "_ADDED", {})


def tensor(*shape: int) -> SimpleNamespace:
    """Return what a tensor shows of itself: no torch is needed."""
    return SimpleNamespace(shape=shape)


def nested(*shapes: tuple[int, ...]) -> SimpleNamespace:
    return SimpleNamespace(is_nested=True, unbind=lambda: [tensor(*s) for s in shapes])


def latents(architecture: str, config: dict[str, Any], **data: Any) -> list[int]:
    return DiffusionFlopsCounter(architecture, config).collect_meta(data)["latent_seqlens"]


# Estimates


def test_an_estimate_is_three_times_forward_in_tflops_per_second():
    counter = DiffusionFlopsCounter("QwenImagePipeline", QWEN)
    # 2[12Ld²(I + P) + CdI + JdP + 4C'dI + 12Ld² + 256d + 3d²] + 4Ld(I + P)² with L = 2, d = 48, C = 4C' = 64, J = 40, I = 12, P = 5
    d, i, p = 48, 12, 5
    forward = 2 * (24 * d * d * (i + p + 1) + 2 * 64 * d * i + 40 * d * p + 256 * d + 3 * d * d) + 8 * d * (i + p) ** 2
    estimated, promised = counter.estimate_flops([i, i], [p, p], 2.0, num_timesteps=10, num_forward_passes=2)
    assert estimated == pytest.approx(3 * 2 * forward * 10 * 2 / 2.0 / 1e12, rel=1e-15)
    assert promised is None


def test_it_exceeds_the_upstream_estimate_by_timestep_embedder_and_last_modulation():
    if not VECTORS.exists():
        pytest.skip("the shared vectors are not beside this checkout")
    vectors = [v for v in json.loads(VECTORS.read_text())["vectors"] if v["tool"] == "DiffusionFlopsCounter.estimate_flops"]
    qwen = [v for v in vectors if v["model_type"] == "QwenImagePipeline"]
    if not qwen:
        pytest.skip("the shared vectors hold none of Qwen-Image")
    for vector in qwen:
        counted = QwenImageFlops(vector["config"]).flops(vector["latent_seqlens"], vector["prompt_seqlens"])
        times = vector["num_timesteps"] * vector["num_forward_passes"]
        d = vector["config"]["num_attention_heads"] * vector["config"]["attention_head_dim"]
        # a sample's 256d + d² of the timestep embedder and 2d² of the last modulation, 2 FLOPs each, forward and twice backward
        missing = 3 * 2 * (256 * d + 3 * d * d) * len(vector["latent_seqlens"])
        assert counted * times - int(vector["expected_flops"]) == missing * times


@pytest.mark.parametrize(("peak", "promised"), [(989.5, 989.5), (lambda: 312, 312.0), (None, None)])
def test_the_peak_is_given_or_asked_for(peak, promised):
    counter = DiffusionFlopsCounter("QwenImagePipeline", QWEN, peak)
    assert counter.estimate_flops([12], [5], 1.0)[1] == promised


def test_an_unknown_architecture_is_an_error_and_not_zero():
    with pytest.raises(UllageError, match="no formula for the architecture 'QwenImagePipelin' of the pipeline") as error:
        DiffusionFlopsCounter("QwenImagePipelin", QWEN)
    assert "QwenImagePipeline" in error.value.hint


def test_a_language_model_is_no_diffusion_architecture():
    with pytest.raises(UllageError, match="LlamaForCausalLM"):
        DiffusionFlopsCounter("LlamaForCausalLM", {})


def test_the_transformer_names_the_architecture_where_the_trainer_does_not():
    config = {**QWEN, "_class_name": "QwenImageTransformer2DModel"}
    counter = DiffusionFlopsCounter(None, config)
    assert (counter.architecture, counter.config) == ("QwenImageTransformer2DModel", config)


def test_a_rollout_pipeline_is_the_pipeline_it_derives_from():
    whole = [
        DiffusionFlopsCounter(name, QWEN).estimate_flops([12], [5], 1.0) for name in ("QwenImagePipeline", "QwenImagePipelineWithLogProb")
    ]
    assert whole[0] == whole[1]


@pytest.mark.parametrize(
    ("latent", "prompt", "seconds", "says"),
    [
        ([], [], 1.0, "no latents to count"),
        ([12], [5, 5], 1.0, "latents of 1 samples, and prompts of 2"),
        ([-1], [5], 1.0, "less than 0 tokens"),
        ([12], [5], 0.0, "can't take 0.0 s"),
    ],
)
def test_what_cannot_be_counted_is_an_error_and_not_zero(latent, prompt, seconds, says):
    with pytest.raises(UllageError, match=says):
        DiffusionFlopsCounter("QwenImagePipeline", QWEN).estimate_flops(latent, prompt, seconds)


# Lengths from data


@pytest.mark.parametrize(
    ("architecture", "config", "name", "shape", "lengths"),
    [
        ("QwenImagePipeline", QWEN, "image_latents", (2, 4096, 64), [4096, 4096]),  # packed (B, L, C·p²)
        ("QwenImagePipeline", QWEN, "all_latents", (2, 10, 4096, 64), [4096, 4096]),  # packed, of ten timesteps
        ("QwenImagePipeline", QWEN, "image_latents", (2, 16, 128, 64), [2048, 2048]),  # 64 columns are no packed channels
        ("QwenImagePipeline", QWEN, "image_latents", (1, 16, 1, 128, 128), [4096]),
        ("StableDiffusion3Pipeline", SD3, "image_latents", (3, 16, 128, 128), [4096] * 3),  # patches of 2 × 2
        ("StableDiffusion3Pipeline", SD3, "all_latents", (3, 10, 16, 128, 128), [4096] * 3),
        ("StableDiffusion3Pipeline", SD3, "image_latents", (1, 16, 32, 16), [128]),
        ("FluxPipeline", FLUX, "image_latents", (1, 1024, 64), [1024]),
        ("FluxControlPipeline", {**FLUX, "in_channels": 128, "out_channels": 64}, "image_latents", (1, 1024, 64), [1024]),
        ("WanPipeline", WAN, "image_latents", (1, 16, 21, 60, 104), [32760]),  # 21 × 30 × 52: the patch is 1 × 2 × 2
        ("WanPipeline", WAN, "all_latents", (2, 10, 16, 21, 60, 104), [32760, 32760]),
    ],
)
def test_latents_are_patched_as_the_config_says(architecture, config, name, shape, lengths):
    assert latents(architecture, config, **{name: tensor(*shape)}) == lengths


def test_latents_may_be_nested_or_a_list():
    # 8/2 × 12/2 and 4/2 × 6/2
    shapes = [(16, 8, 12), (16, 4, 6)]
    assert latents("StableDiffusion3Pipeline", SD3, image_latents=nested(*shapes)) == [24, 6]
    assert latents("StableDiffusion3Pipeline", SD3, image_latents=[tensor(*s) for s in shapes]) == [24, 6]
    assert latents("StableDiffusion3Pipeline", SD3, image_latents=[[[[0.0] * 6] * 4] * 16]) == [6]


def test_latents_that_fit_neither_layout_are_refused():
    with pytest.raises(UllageError, match=r"image_latents has samples of shape \(77, 5\)"):
        latents("QwenImagePipeline", QWEN, image_latents=tensor(2, 77, 5))


@pytest.mark.parametrize(
    ("architecture", "lengths"),
    [
        ("QwenImageEditPipeline", [1024 + 256] * 2),
        ("QwenImageEditPlusPipeline", [1024 + 256] * 2),
        ("QwenImageImg2ImgPipeline", [1024] * 2),  # the reference only starts the noise
        ("QwenImageInpaintPipeline", [1024] * 2),
        ("QwenImagePipeline", [1024] * 2),
    ],
)
def test_reference_latents_join_where_the_pipeline_joins_them(architecture, lengths):
    assert latents(architecture, QWEN, image_latents=tensor(2, 1024, 64), reference_image_latents=tensor(2, 256, 64)) == lengths
    assert latents(architecture, QWEN, image_latents=tensor(2, 1024, 64), reference_image_latents=tensor(256, 64)) == lengths


def test_a_config_given_to_the_reader_stands_above_its_own():
    arch = DiffusionModelFlops({"in_channels": 256})
    data = {"image_latents": tensor(2, 256, 64)}
    assert arch.get_latent_seqlens(data, {"in_channels": 64}) == [256, 256]
    assert arch.get_latent_seqlens(data) == [64, 64]  # 256 channels of 64 values: audio


@pytest.mark.parametrize(
    ("data", "lengths"),
    [
        ({"prompt_embeds_mask": [[1, 1, 0], [1, 0, 0]], "prompt_embeds": tensor(2, 3, 40)}, [2, 1]),
        ({"prompt_embeds_mask": nested((7,), (5,))}, [7, 5]),
        ({"prompt_embeds_mask": SimpleNamespace(tolist=lambda: [[True, False], [True, True]])}, [1, 2]),
        ({"prompt_embeds": tensor(2, 77, 40)}, [77, 77]),
        ({"prompt_embeds": nested((7, 40), (5, 40))}, [7, 5]),
        ({"image_latents": tensor(3, 4, 8, 8)}, [0, 0, 0]),  # unconditional
        (None, []),
    ],
)
def test_prompts_are_as_long_as_their_mask_keeps(data, lengths):
    assert DiffusionModelFlops().get_prompt_seqlens(data) == lengths


def test_what_a_batch_needs_is_collected_at_once():
    counter = DiffusionFlopsCounter("QwenImagePipeline", QWEN)
    data = {"all_latents": tensor(2, 10, 1024, 64), "prompt_embeds": tensor(2, 77, 40), "all_timesteps": tensor(2, 10)}
    meta = collect_diffusion_flops_meta(counter, data, pipeline_config=SimpleNamespace(true_cfg_scale=4.0))
    assert meta == {"latent_seqlens": [1024, 1024], "prompt_seqlens": [77, 77], "num_timesteps": 10, "num_forward_passes": 2}


def test_wan_s_prompt_stream_beyond_512_is_its_conditioning_image():
    config = {**WAN, "image_dim": 1280, "added_kv_proj_dim": 48}
    counter = DiffusionFlopsCounter("WanImageToVideoPipeline", config)
    with_image, without = (counter.estimate_flops([120], [n], 1e-12)[0] for n in (512 + 257, 512 + 256))
    # an image token more: two projections in each of 2 layers, 2 × 48 × 48 × 2, its pairs 4 × 48 × 120 × 2, its embedder 1280² + 1280·48
    assert with_image - without == pytest.approx(3 * (2 * 2 * 2 * 48 * 48 + 2 * 4 * 48 * 120 + 2 * (1280 * 1280 + 1280 * 48)))


# Forward passes


@pytest.mark.parametrize(
    ("pipeline", "transformer", "passes"),
    [
        ({"num_forward_passes": 1, "true_cfg_scale": 4.0}, {}, 1),
        ({"num_forward_passes": 3}, {"guidance_embeds": True}, 3),
        ({"guidance_scale": 3.5}, {"guidance_embeds": True}, 1),
        ({"true_cfg_scale": 4.0, "guidance_scale": 1.0}, {"guidance_embeds": False}, 2),
        ({"true_cfg_scale": 1.0, "guidance_scale": 1.0}, {}, 1),
        ({"guidance_scale": 7.0}, {}, 2),
        ({"guidance_scale": None, "num_forward_passes": None}, None, 1),
        (SimpleNamespace(guidance_scale=7.0), None, 2),
        (None, None, 1),
    ],
)
def test_forward_passes_follow_their_order(pipeline, transformer, passes):
    assert get_forward_passes_per_step(pipeline, transformer) == passes


# Architectures of one's own


def test_a_class_of_ones_own_counts_and_is_listed(registry):
    @register_diffusion_architecture("MinePipeline", "MinePipelineTwo")
    class Mine(DiffusionModelFlops):
        def estimate_flops(self, latent_seqlens, prompt_seqlens, delta_time, *, num_timesteps, num_forward_passes):
            dense = self.compute_dense_flops(self.config["num_layers"] * 4 * self.dim**2, sum(latent_seqlens))
            pairs = self.compute_attention_flops(latent_seqlens, prompt_seqlens)
            return (dense + pairs) * num_timesteps * num_forward_passes / delta_time / 1e12

    config = {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 8}
    counter = DiffusionFlopsCounter("MinePipelineTwo", config, 100.0)
    assert counter.collect_meta({"image_latents": tensor(2, 4, 3, 5)}) == {"latent_seqlens": [15, 15], "prompt_seqlens": [0, 0]}
    # 6 × 2 × 4 × 16² × 30 dense, 12 × 2 × 16 × (2 × 15²) pairs; 5 timesteps in 2 s
    flops = 6 * 2 * 4 * 256 * 30 + 12 * 2 * 16 * 450
    assert counter.estimate_flops([15, 15], [0, 0], 2.0, num_timesteps=5) == (pytest.approx(flops * 5 / 2.0 / 1e12), 100.0)
    assert counter.architecture_cls is Mine
    assert {"MinePipeline", "MinePipelineTwo", "QwenImagePipeline", "WanPipeline"} <= set(diffusion_architectures())


def test_a_class_of_ones_own_stands_above_the_family(registry):
    @register_diffusion_architecture("QwenImagePipeline")
    class Half(QwenImageFlops):
        def estimate_flops(self, *args, **kwargs):
            return super().estimate_flops(*args, **kwargs) / 2

    whole = QwenImageFlops(QWEN).estimate_flops([12], [5], 1.0, num_timesteps=1, num_forward_passes=1)
    assert DiffusionFlopsCounter("QwenImagePipeline", QWEN).estimate_flops([12], [5], 1.0)[0] == whole / 2


def test_reading_latents_can_be_overridden_alone(registry):
    @register_diffusion_architecture("MyEditPipeline")
    class Edit(QwenImageFlops):
        def get_latent_seqlens(self, data=None, config=None):
            extra = data.get("reference_image_latents")
            return [n + (extra.shape[-2] if extra else 0) for n in super().get_latent_seqlens(data, config)]

    data = {"image_latents": tensor(2, 1024, 64), "reference_image_latents": tensor(2, 256, 64)}
    assert latents("MyEditPipeline", QWEN, **data) == [1280, 1280]


def test_only_architectures_can_be_registered(registry):
    with pytest.raises(TypeError, match="subclasses of DiffusionModelFlops"):
        register_diffusion_architecture("MinePipeline")(dict)


def test_an_architecture_that_says_nothing_is_an_error(registry):
    register_diffusion_architecture("EmptyPipeline")(type("Empty", (DiffusionModelFlops,), {}))
    with pytest.raises(UllageError, match="Empty does not say what a step costs"):
        DiffusionFlopsCounter("EmptyPipeline", {}).estimate_flops([1], [1], 1.0)


def test_the_documented_wan_scales_with_timesteps_and_length():
    # the example's config, whose added_kv_proj_dim stands without an image embedder
    config = {"num_attention_heads": 16, "attention_head_dim": 128, "num_layers": 30, "ffn_dim": 8192, "added_kv_proj_dim": 2048}
    counter = DiffusionFlopsCounter("WanPipeline", config)
    ten, thirty = (counter.estimate_flops([512] * 2, [64] * 2, 1.0, num_timesteps=n)[0] for n in (10, 30))
    assert thirty / ten == pytest.approx(3, rel=1e-9)
    short, long = (counter.estimate_flops([n], [64], 1.0)[0] for n in (4096, 8192))
    assert 2.0 < long / short < 4.0
