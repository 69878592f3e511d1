"""What questions are made of: what may be asked (`ullage.askable`), what a question is, and what questions share."""

from ullage.askable import (
    Askable,
    TextReader,
    Window,
    WrongQuestionError,
    askable,
    asked,
    hints_of,
    question_of,
    read_headers,
    read_moment,
    read_positive_span,
    read_prices,
    read_share,
    read_span,
)

__all__ = [
    "Askable",
    "TextReader",
    "Window",
    "WrongQuestionError",
    "askable",
    "asked",
    "hints_of",
    "question_of",
    "read_headers",
    "read_moment",
    "read_positive_span",
    "read_prices",
    "read_share",
    "read_span",
]
