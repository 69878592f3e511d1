"""The options that describe a step, for a command that is no question yet."""

from __future__ import annotations

from typing import Any

from ullage.asking import askable
from ullage.asking.step import StepDescription
from ullage.cli._question_command import option_of


def described(command: Any) -> Any:
    """Give a command the options that describe a step."""
    command.__click_params__ = [*map(option_of, askable(StepDescription)), *getattr(command, "__click_params__", [])]
    return command
