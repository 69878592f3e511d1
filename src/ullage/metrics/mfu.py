"""Model work over what the hardware could have done: MFU, HFU, and what lies between them."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="1", source="OFU paper, eq. 10; PaLM, arXiv:2204.02311, section 4.1")
def mfu(model_flops: Value, step_time: Value, gpus: Value, peak: Value) -> Value:
    """How much of the GPUs' peak went into model progress (model FLOPs utilization).

    1 when every GPU multiplies at its peak for the model all the time. Recomputation and padding do not count. `peak` is
    one GPU's dense peak in FLOP/s, `step_time` in s. Above 1 a number that went in is wrong.

    8 GPUs of 100 FLOP/s work 10 s on 4,000 model FLOPs: half of 8,000.

    >>> mfu(model_flops=4000, step_time=10, gpus=8, peak=100)
    0.5
    """
    return ratio(model_flops, step_time * gpus * peak)


@metric(unit="1", source="PaLM, arXiv:2204.02311, section 4.1; equations of model FLOPs")
def hfu(executed_flops: Value, step_time: Value, gpus: Value, peak: Value) -> Value:
    """How much of the GPUs' peak went into FLOPs that were executed (hardware FLOPs utilization).

    As `mfu`, with recomputation and padding counted. Without loss in tiles it is what OFU should show.

    The same 8 GPUs did 5,000 FLOPs, 1,000 of them for the second time.

    >>> hfu(executed_flops=5000, step_time=10, gpus=8, peak=100)
    0.625
    """
    return ratio(executed_flops, step_time * gpus * peak)


@metric(unit="1", source="equations of the chain from peak to MFU: MFU = OFU × tile efficiency × model efficiency")
def model_efficiency(model_flops: Value, executed_flops: Value) -> Value:
    """How much of the executed work the model needed.

    1 without recomputation and padding; 3/4 when every layer's forward pass is done twice.

    >>> model_efficiency(model_flops=6, executed_flops=8)
    0.75
    """
    return ratio(model_flops, executed_flops)


@metric(unit="FLOP/s", source="OFU paper, eq. 10, numerator")
def flops_per_gpu(model_flops: Value, step_time: Value, gpus: Value) -> Value:
    """How many model FLOPs a GPU does in a second.

    4,000 FLOPs in 10 s on 8 GPUs.

    >>> flops_per_gpu(model_flops=4000, step_time=10, gpus=8)
    50.0
    """
    return ratio(model_flops, step_time * gpus)
