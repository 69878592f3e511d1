"""MFU from lengths and seconds, and lengths from batches: what every adapter stands on. No library is needed."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

import numpy as np
import pytest

from ullage.adapters.batches import read_batch
from ullage.adapters.meter import MeasuredStep, Meter
from ullage.errors import UllageError
from ullage.models.passes import Training
from ullage.models.sample import Sample

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip
# a token: 2 layers × (4·8² + 3·8·16) + 80 of the head = 1,360 weights, 2,720 FLOPs; a pair: 4·8 FLOPs in each of 2 layers = 64
FORWARD = {4: 4 * 2720 + 10 * 64, 3: 3 * 2720 + 6 * 64, 1: 2720 + 64}


@pytest.fixture(autouse=True)
def no_overrides(monkeypatch):
    for name in ("ULLAGE_PEAK_TFLOPS", "ULLAGE_GPU_ALIAS"):
        monkeypatch.delenv(name, raising=False)


# Steps


def test_a_step_is_three_times_forward_over_all_sequences():
    assert Meter(TINY).step([4, 3], 1.0) == MeasuredStep(3 * (FORWARD[4] + FORWARD[3]), pytest.approx(3 * (FORWARD[4] + FORWARD[3]) / 1e12))


def test_forward_only_is_forward_only():
    assert Meter(TINY).step([4, 1], 1.0, forward_only=True).flops == FORWARD[4] + FORWARD[1]


def test_gpus_share_the_step():
    # 34,560 FLOPs in 2 s on 4 GPUs are 4,320 FLOP/s each, of 8,640
    measured = Meter(TINY, gpus=4, peak_tflops=8640e-12).step([4], 2.0)
    assert measured[1:4] == (pytest.approx(4320e-12), pytest.approx(0.5), pytest.approx(0.5))


def test_recomputation_and_padding_are_in_the_hfu_and_not_in_the_mfu():
    meter = Meter(TINY, peak_tflops=1e-6, training=Training(recompute="full", reentrant=True))
    measured = meter.step([3], 1.0, padded=[4])
    again = FORWARD[4] - 4 * 2 * 80  # all layers once more, and no head
    assert measured.mfu == pytest.approx(3 * FORWARD[3] / 1e6)
    assert measured.hfu == pytest.approx((3 * FORWARD[4] + again) / 1e6)
    assert set(measured.named()) == {"tflops_per_gpu", "mfu", "hfu"}


def test_lora_counts_the_backward_pass_that_is_needed():
    full, lora = Meter(TINY), Meter(TINY, training=Training(lora_rank=1))
    assert 2 * full.formula.per_lengths(Training(forward_only=True))([4]) < lora.flops([4]) < full.flops([4])


def test_samples_stand_for_what_is_more_than_text():
    assert Meter(TINY).flops([Sample(text=4), Sample(text=3)]) == Meter(TINY).flops([4, 3])


def test_numpy_lengths_do_not_overflow():
    # s² alone is more than an int32 holds
    assert Meter(TINY).flops(np.array([100_000], dtype=np.int32)) == Meter(TINY).flops([100_000])


def test_the_gpu_names_the_peak():
    measured = Meter({**TINY, "hidden_size": 4096, "intermediate_size": 14336}, gpu="H100 SXM", gpus=8).step([4096] * 8, 1.0)
    assert measured.mfu == pytest.approx(measured.tflops_per_gpu / 989.4, rel=1e-4)


def test_without_a_gpu_there_are_tflops_and_no_mfu():
    measured = Meter(TINY).step([4], 1.0)
    assert (measured.mfu, measured.named()) == (None, {"tflops_per_gpu": pytest.approx(34560e-12)})


def test_the_environment_names_the_peak_too(monkeypatch):
    monkeypatch.setenv("ULLAGE_PEAK_TFLOPS", "bf16=1e-6")
    assert Meter(TINY).step([4], 1.0).mfu == pytest.approx(0.03456)
    assert Meter(TINY, precision="fp8").step([4], 1.0).mfu is None  # nobody said the peak of FP8


@pytest.mark.parametrize(
    ("options", "says"),
    [({"gpu": "H1000"}, "no GPU is called"), ({"gpus": 0}, "0 GPUs"), ({"kind": "LlamaForCausalLMs"}, "no formula")],
)
def test_what_is_wrong_is_said_before_the_first_step(options, says):
    with pytest.raises(UllageError, match=says):
        Meter(TINY, **options)


# What a run must survive


def test_an_mfu_above_one_is_left_out_and_explained_once(caplog):
    meter = Meter(TINY, gpu="H100 SXM", peak_tflops=1e-9)
    measured = [meter.step([4], 1.0) for _ in range(3)]
    assert measured[0] == MeasuredStep(34560, pytest.approx(34560e-12))
    assert len(caplog.records) == 1
    assert "an MFU of 3456 % can't be" in caplog.text
    assert "more GPUs than one worked on the step (at least 35): give gpus" in caplog.text


def test_fp8_is_named_where_it_would_explain_the_mfu(caplog):
    Meter(TINY, gpu="H100 SXM", gpus=2, peak_tflops=10000e-12).step([4], 1.0)
    assert "the clock stopped before the device had finished" in caplog.text
    assert "FP8" in caplog.text


def test_a_hfu_above_one_leaves_the_mfu(caplog):
    measured = Meter(TINY, peak_tflops=30000e-12).step([3], 1.0, padded=[4])
    assert measured.mfu is not None
    assert measured.hfu is None
    assert "HFU" in caplog.text


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_clock_that_stood_still_ends_no_run(seconds, caplog):
    assert Meter(TINY, gpu="H100 SXM").step([4], seconds) == MeasuredStep(34560)
    assert "a step can't take" in caplog.text


def test_lengths_that_cannot_be_end_no_run(caplog):
    assert Meter(TINY).step([-4], 1.0) == MeasuredStep(None)
    assert caplog.records[0].levelno == logging.WARNING


def test_a_step_without_sequences_has_no_flops():
    assert Meter(TINY).step([], 1.0).flops == 0


@pytest.mark.parametrize("training", [Training(), Training(recompute="full")])
def test_a_step_of_32_sequences_is_counted_in_microseconds(training):
    # measured: 8 to 14 µs; the limit is loose, for machines that are shared
    meter = Meter(TINY, gpu="H100 SXM", gpus=8, training=training)
    lengths = list(range(100, 132))
    rounds = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(50):
            meter.step(lengths, 1.0)
        rounds.append((time.perf_counter() - start) / 50)
    assert min(rounds) < 100e-6


# Lengths


@pytest.mark.parametrize(
    ("batch", "lengths", "padded"),
    [
        ({"input_ids": np.zeros((2, 5))}, [5, 5], None),
        ({"inputs_embeds": np.zeros((2, 5, 8))}, [5, 5], None),
        ({"input_ids": np.zeros((2, 4)), "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]])}, [4, 2], [4, 4]),
        ({"attention_mask": np.array([[True, True, False]])}, [2], [3]),
        ({"attention_mask": np.ones((2, 3), dtype=int)}, [3, 3], None),
        ({"attention_mask": np.array([[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1]])}, [2, 3, 6], [6, 6]),  # numbers of packed sequences
        ({"input_ids": np.zeros((1, 6)), "attention_mask": np.ones((1, 1, 6, 6))}, [6], None),
        ({"input_ids": np.zeros((1, 6)), "position_ids": np.array([[0, 1, 2, 0, 1, 0]])}, [3, 2, 1], None),
        ({"input_ids": np.zeros((2, 3)), "position_ids": np.array([[0, 1, 2]] * 2)}, [3, 3], None),
        # of a left-padded batch the mask decides: padding has position 0 too
        ({"attention_mask": np.array([[0, 0, 1, 1]]), "position_ids": np.array([[0, 0, 0, 1]])}, [2], [4]),
        # three rows of an image's positions say nothing of packing; a fourth before them is the text's
        ({"input_ids": np.zeros((1, 3)), "position_ids": np.zeros((3, 1, 3))}, [3], None),
        ({"input_ids": np.zeros((1, 3)), "position_ids": np.array([[[0, 1, 0]]] * 4)}, [2, 1], None),
        ({"input_ids": np.zeros((1, 9)), "cu_seq_lens_q": np.array([0, 4, 9])}, [4, 5], None),
        ({"cu_seqlens": [0, 4, 9]}, [4, 5], None),
    ],
)
def test_lengths_are_read_from_a_batch(batch, lengths, padded):
    read = read_batch(batch)
    assert (read.lengths, read.padded) == (lengths, padded)


def test_lengths_may_be_given_in_place_of_a_batch():
    assert read_batch([4, 3]).lengths == [4, 3]
    assert read_batch([Sample(text=4)]).lengths == [Sample(text=4)]


def test_an_encoder_decoder_has_two_lengths():
    batch = {"attention_mask": np.array([[1, 1, 1], [1, 0, 0]]), "labels": np.array([[5, 6], [7, -100]])}
    read = read_batch(batch, "encoder-decoder")
    assert read.lengths == [Sample(text=2, encoder=3), Sample(text=1, encoder=1)]
    assert read.padded == [Sample(text=2, encoder=3), Sample(text=2, encoder=3)]


def test_speech_has_frames_beside_text():
    batch = {"input_features": np.zeros((2, 80, 3000)), "decoder_input_ids": np.zeros((2, 7))}
    assert read_batch(batch, "audio").lengths == [Sample(text=7, audio=3000)] * 2
    batch = {"input_features": np.zeros((1, 128, 3000)), "input_ids": np.zeros((1, 9))}
    assert read_batch(batch, "audio").lengths == [Sample(text=9, audio=3000)]


def test_images_are_pixels_or_grids():
    assert read_batch({"pixel_values": np.zeros((2, 3, 32, 48))}, "vision").lengths == [Sample(pixels=((32, 48),))] * 2
    tiles = {"pixel_values": np.zeros((1, 4, 3, 28, 28)), "input_ids": np.zeros((1, 9))}
    assert read_batch(tiles, "vision-language").lengths == [Sample(text=9, pixels=((28, 28),) * 4)]
    grids = {"image_grid_thw": np.array([[1, 4, 6], [1, 2, 2]]), "pixel_values": np.zeros((28, 1176)), "input_ids": np.zeros((2, 9))}
    assert read_batch(grids, "vision-language").lengths == [Sample(text=9, grids=((1, 4, 6), (1, 2, 2))), Sample(text=9)]
    assert read_batch({"input_ids": np.zeros((1, 9))}, "vision-language").lengths == [Sample(text=9)]


@pytest.mark.parametrize(
    ("batch", "kind", "says"),
    [
        ({}, "decoder", "no input_ids"),
        ({"input_ids": np.zeros((2, 3))}, "encoder-decoder", "no labels"),
        ({"input_ids": np.zeros((2, 3)), "labels": np.zeros((1, 3))}, "encoder-decoder", "1 texts for 2 inputs"),
        ({"pixel_values": np.zeros(3)}, "vision", "no pixel_values"),
        ({"image_latents": np.zeros((1, 4, 8, 8))}, "diffusion", "give Samples"),
    ],
)
def test_a_batch_that_tells_no_lengths_is_an_error(batch, kind, says):
    with pytest.raises(UllageError, match=says):
        read_batch(batch, kind)
