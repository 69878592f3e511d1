"""Plain PyTorch: windows around steps, what of a model trains, and two ranks that know together what they did."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ullage[trainers]'")

from ullage.adapters import ranks  # noqa: E402
from ullage.adapters.torch import TorchMeter  # noqa: E402
from ullage.errors import UllageError  # noqa: E402

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip
TRAINED = {4: 34560, 3: 3 * (3 * 2720 + 6 * 64)}  # as in the meter's own tests


def meter(model: Any = TINY, **options: Any) -> TorchMeter:
    """Return a meter whose clock says 1, 2, 3, … s."""
    seconds = count(1.0)
    return TorchMeter(model, clock=lambda: next(seconds), **{"peak_tflops": 1e-6, **options})


def ids(rows: int, columns: int) -> dict[str, Any]:
    return {"input_ids": torch.zeros((rows, columns), dtype=torch.long)}


def test_a_step_is_measured_around_it():
    with meter().measure(ids(1, 4)) as step:
        assert step.running
    assert step.measured[:4] == (34560, pytest.approx(34560e-12), pytest.approx(0.03456), pytest.approx(0.03456))


def test_micro_batches_add_up():
    with meter().measure(ids(1, 4), ids(2, 3)) as step:
        step.count({"attention_mask": torch.tensor([[1, 1, 1, 0]])})
    assert step.measured.flops == TRAINED[4] + 3 * TRAINED[3]
    assert step.measured.hfu > step.measured.mfu  # the fourth token of the last one is padding


def test_a_nested_batch_has_the_lengths_of_its_rows():
    nested = torch.nested.nested_tensor([torch.zeros(4), torch.zeros(3)], layout=torch.jagged)
    with meter().measure({"input_ids": nested}) as step:
        pass
    assert step.measured.flops == TRAINED[4] + TRAINED[3]


def test_a_function_reads_what_the_fields_do_not_tell():
    with meter(lengths=lambda batch: [batch["tokens"]]).measure({"tokens": 4}) as step:
        pass
    assert step.measured.flops == 34560


def test_inference_is_forward_only():
    with meter().measure(ids(1, 4), forward_only=True) as step:
        pass
    assert step.measured.flops == 34560 // 3


def test_a_batch_that_cannot_be_read_ends_no_run(caplog):
    measuring = meter()
    for _ in range(2):
        with measuring.measure({"tokens": 4}, ids(1, 4)) as step:
            pass
        assert step.measured.flops is None
    assert caplog.text.count("have no MFU") == 1


def test_the_error_of_a_step_goes_on_and_is_not_measured():
    measuring = meter()
    with pytest.raises(ZeroDivisionError), measuring.measure(ids(1, 4)) as step:
        1 / 0  # noqa: B018
    assert step.measured.flops is None


def test_a_pause_is_not_timed():
    measuring = meter()
    with measuring.measure(ids(1, 4)) as step:  # 1 s to 2 s
        step.pause()
        step.start()  # 3 s to 4 s
    assert step.measured.mfu == pytest.approx(0.03456 / 2)


def test_a_gpu_that_nobody_knows_leaves_tflops(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Mystery GPU 9")
    with meter(peak_tflops=None).measure(ids(1, 4)) as step:
        pass
    assert step.measured.mfu is None
    assert step.measured.tflops_per_gpu is not None
    assert "no GPU is called 'Mystery GPU 9'" in caplog.text


def test_the_device_is_waited_for_at_both_ends(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    measuring = TorchMeter(TINY)
    with measuring.measure(ids(1, 4)) as step:
        assert len(waited) == 1
    assert len(waited) == 2
    assert step.measured.mfu is not None


def test_a_module_without_a_config_is_an_error():
    with pytest.raises(UllageError, match="a Linear has no config"):
        TorchMeter(torch.nn.Linear(2, 2))


# Models


@pytest.fixture
def llama():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ullage[trainers]'")
    config = transformers.LlamaConfig(**{**TINY, "num_key_value_heads": 2, "max_position_embeddings": 64})
    return transformers.LlamaForCausalLM(config)


def one_step(model: Any, **options: Any) -> int:
    with meter(model, **options).measure(ids(1, 4)) as step:
        pass
    return step.measured.flops


def test_a_model_has_its_config(llama):
    assert one_step(llama) == 34560
    assert one_step(torch.nn.DataParallel(llama)) == 34560


def test_a_class_of_ones_own_is_the_one_it_derives_from(llama):
    llama.__class__ = type("MyLlama", (type(llama),), {})
    assert one_step(llama) == 34560


def counted(model: Any) -> int:
    """Return what torch counts forward and backward: its rule for attention is full, not causal."""
    from torch.utils.flop_counter import FlopCounterMode

    model.config._attn_implementation = "eager"
    with FlopCounterMode(display=False) as counter:
        model(**ids(1, 4), labels=ids(1, 4)["input_ids"]).loss.backward()
    return counter.get_total_flops()


def test_frozen_weights_have_no_gradient_as_torch_counts(llama):
    for part in (llama.model.embed_tokens, llama.model.layers[0], llama.lm_head):
        part.requires_grad_(False)
    # layer 0 runs forward only; the head has a dgrad and no wgrad
    assert one_step(llama, attention="full") == counted(llama)


def test_a_layer_frozen_in_part_is_seen(llama):
    llama.model.layers[1].mlp.requires_grad_(False)
    assert one_step(llama, attention="full") == counted(llama)


def test_lora_of_peft_has_its_exact_backward(llama):
    peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install 'ullage[trainers]'")
    adapted = peft.get_peft_model(llama, peft.LoraConfig(r=3, target_modules=["q_proj", "v_proj"]))
    assert one_step(adapted, attention="full") == counted(adapted)


def test_lora_in_some_layers_or_of_several_ranks_is_said(llama, caplog):
    peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install 'ullage[trainers]'")
    config = peft.LoraConfig(r=3, target_modules=["q_proj", "v_proj"], rank_pattern={"q_proj": 5}, layers_to_transform=[0])
    assert one_step(peft.get_peft_model(llama, config)) > 0
    assert "ranks from 3 to 5" in caplog.text
    assert "1 have one" in caplog.text


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpoints_are_in_the_hfu(llama, reentrant):
    getattr(llama, "activation_checkpointing_enable", llama.gradient_checkpointing_enable)({"use_reentrant": reentrant})
    with meter(llama).measure(ids(1, 4)) as step:
        pass
    layers = 34560 // 3 - 4 * 2 * 80
    again = layers - (0 if reentrant else 2 * 4 * 2 * 8 * 16)  # PyTorch's other kind stops before each layer's last product
    assert step.measured.flops == 34560
    assert step.measured.hfu == pytest.approx((34560 + again) / 1e6)


# Two ranks

RANK = """
import json, sys
from itertools import count
import torch, torch.distributed as dist
from ullage.adapters import ranks
from ullage.adapters.torch import TorchMeter
from ullage.adapters.verl import FlopsCounter, allgather_seqlens, metrics
from ullage.adapters.verl_omni import allgather_diffusion_flops_meta
rank, tiny = int(sys.argv[1]), json.loads(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
alone = [dist.new_group([0]), dist.new_group([1])][rank]
def step(group, batch, gather=True):
    clock = count(1.0)
    with TorchMeter(tiny, clock=lambda: next(clock), peak_tflops=1e-6, group=group, gather=gather).measure(batch) as window:
        pass
    return window.measured
both = step(None, {"input_ids": torch.zeros((1, 4 - rank))})
shared = step(alone, {"input_ids": torch.zeros((1, 4))})
own = step(None, {"input_ids": torch.zeros((1, 4 - rank))}, gather=False)
unread = step(None, {} if rank else {"input_ids": torch.zeros((1, 4))})
lengths = allgather_seqlens([4 - rank, 9 - rank])
estimated, promised = FlopsCounter(tiny, peak_tflops=1e-6).estimate_flops(lengths, 1.0)
meta = allgather_diffusion_flops_meta({"latent_seqlens": [rank], "prompt_seqlens": [], "num_timesteps": 7})
print(json.dumps({
    "both": both, "shared": shared, "own": own, "unread": unread, "lengths": lengths, "metrics": metrics(estimated, promised),
    "estimated": estimated, "meta": meta, "large": ranks.summed([3 << 70, rank]), "world": ranks.world(), "alone": ranks.world(alone),
}))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> list[dict[str, Any]]:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    store = Path(tmp_path_factory.mktemp("ranks")) / "store"
    command = [sys.executable, "-c", RANK]
    runs = [subprocess.Popen([*command, str(rank), str(store), json.dumps(TINY)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    try:
        said = [run.communicate(timeout=120)[0] for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert [run.returncode for run in runs] == [0, 0]
    return [json.loads(text.splitlines()[-1]) for text in said]


def test_the_flops_of_both_ranks_are_divided_by_both(two_ranks):
    # rank 0 trained on 4 tokens, rank 1 on 3
    whole = TRAINED[4] + TRAINED[3]
    for said in two_ranks:
        assert said["both"][:4] == [whole, pytest.approx(whole / 2 / 1e12), pytest.approx(whole / 2 / 1e6), pytest.approx(whole / 2 / 1e6)]


def test_ranks_that_share_samples_divide_them_by_all_that_worked(two_ranks):
    # one data-parallel rank, and two GPUs: tensor or sequence parallel
    assert [said["shared"][:2] for said in two_ranks] == [[34560, pytest.approx(34560 / 2 / 1e12)]] * 2


def test_without_gathering_a_rank_speaks_for_itself(two_ranks):
    assert [said["own"][0] for said in two_ranks] == [TRAINED[4], TRAINED[3]]
    assert [said["own"][1] for said in two_ranks] == [pytest.approx(TRAINED[n] / 1e12) for n in (4, 3)]


def test_a_rank_that_could_not_read_its_batch_leaves_none_a_number(two_ranks):
    assert [said["unread"] for said in two_ranks] == [[None] * 5] * 2


def test_lengths_are_gathered_in_the_order_of_ranks(two_ranks):
    for said in two_ranks:
        assert said["lengths"] == [4, 9, 3, 8]
        assert said["metrics"] == {"perf/mfu/actor": pytest.approx(said["estimated"] / 1e-6 / 2)}
        assert said["meta"] == {"latent_seqlens": [0, 1], "prompt_seqlens": [0, 0], "num_timesteps": 7}


def test_sums_are_exact_beyond_64_bits(two_ranks):
    assert [said["large"] for said in two_ranks] == [[6 << 70, 1]] * 2
    assert [(said["world"], said["alone"]) for said in two_ranks] == [(2, 1)] * 2


def test_one_process_is_a_world_of_its_own():
    assert (ranks.world(), ranks.summed([3, 4]), ranks.gathered([5])) == (1, [3, 4], [5])
