"""The questions as Python functions, with the same words as the commands."""

from ullage.questions._audits import audit_fleet, audit_mfu
from ullage.questions._chain import waterfall
from ullage.questions._products import gemm
from ullage.questions._samples import read_samples
from ullage.questions._steps import flops, step_question
from ullage.questions._traces import stragglers, trace

__all__ = ["audit_fleet", "audit_mfu", "flops", "gemm", "read_samples", "step_question", "stragglers", "trace", "waterfall"]
