"""The questions as Python functions, with the same words as the commands."""

from ullage.questions.audits import audit_fleet, audit_mfu
from ullage.questions.chain import waterfall
from ullage.questions.products import gemm
from ullage.questions.samples import fleet, read_samples
from ullage.questions.steps import flops, step_question
from ullage.questions.traces import stragglers, trace

__all__ = ["audit_fleet", "audit_mfu", "fleet", "flops", "gemm", "read_samples", "step_question", "stragglers", "trace", "waterfall"]
