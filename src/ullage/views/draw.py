"""What every picture is made of: the document, text that fits, marks, scales."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from ullage.errors import harmless
from ullage.views.markup import Child, Markup, element, number
from ullage.views.palette import standalone_rules

WIDE, NARROW = 880, 360
SIZE = 13  # text, in pixels
SMALL = 12
MARGIN, HEAD = 24.0, 34.0  # around a picture that is a file of its own, and above it for its title


def picture(
    name: str, title: str, description: str, size: tuple[float, float], *body: Child, standalone: bool, **of_page: str | None
) -> Markup:
    """Return an SVG document of `size` (width, height) that a screen reader announces by `title` and `description`.

    `name` makes its ids, so that several pictures may share a page. What the script of a page reads of it are attributes, `of_page`.
    """
    key = f"{name}-{number(size[0])}"
    x, y, width, height = (-MARGIN, -MARGIN - HEAD, size[0] + 2 * MARGIN, size[1] + 2 * MARGIN + HEAD) if standalone else (0.0, 0.0, *size)
    return element(
        "svg",
        element("title", title, id=f"{key}-title"),
        element("desc", description, id=f"{key}-desc"),
        _sheet(x, y, width, height, title) if standalone else None,
        *body,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=" ".join(number(edge) for edge in (x, y, width, height)),
        role=of_page.pop("role", "img"),
        class_="picture",
        aria_labelledby=f"{key}-title {key}-desc",
        **({"width": width, "height": height} if standalone else of_page),
    )


def _sheet(x: float, y: float, width: float, height: float, title: str) -> list[Markup]:
    """Return what a picture needs that has no page around it: its colours, paper with a margin, a visible title."""
    paper = element("rect", x=x, y=y, width=width, height=height, class_="f-paper")
    return [element("style", Markup(standalone_rules())), paper, text(0, -HEAD + 6, title, size=17)]


def text(x: float, y: float, words: Child, *, anchor: str = "start", colour: str = "ink", size: int = SIZE, bold: bool = False) -> Markup:
    """Return a line of text whose baseline is at `y`."""
    placed = {"text_anchor": None if anchor == "start" else anchor, "font_weight": 600 if bold else None}
    return element("text", words, x=x, y=y, font_size=size, class_=f"f-{colour}", **placed)


def caption(x: float, y: float, words: Child, anchor: str = "start") -> Markup:
    """Return words that explain: small and muted."""
    return text(x, y, words, anchor=anchor, colour="muted", size=SMALL)


def box(x: float, y: float, width: float, height: float, fill: str, **more: object) -> Markup:
    """Return a filled rectangle; a negative width or height is none."""
    return element("rect", x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), class_=f"f-{fill}", **more)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = "rule", **more: object) -> Markup:
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=f"s-{stroke}", **more)


def hatch(key: str, colour: str) -> Markup:
    """Return a definition of diagonal lines, to be used as `fill="url(#key)"`: a second sign beside the colour."""
    ground = element("rect", width=6, height=6, class_="f-full")
    stripe = element("line", x1=0, y1=0, x2=0, y2=6, stroke_width=4, class_=f"s-{colour}")
    return element("pattern", ground, stripe, id=key, width=6, height=6, patternUnits="userSpaceOnUse", patternTransform="rotate(45)")


# Widths in em of a sans serif's letters, on the wide side: what is measured here must fit in any of the fonts we name.
_NARROW, _WIDE = frozenset("iljtfrI.,:;|!'()[]{} /\\"), frozenset("mwMW@%—…")


def extent(words: str, size: float = SIZE) -> float:
    """Return about how wide a text is, in pixels, erring on the wide side.

    >>> extent("million", 10) > extent("ill", 10)
    True
    """
    return size * sum(_em(character) for character in words)


def _em(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if ord(character) > 0x2FF:
        return 1.1 if unicodedata.east_asian_width(character) in "WF" else 0.8
    if character in _NARROW:
        return 0.36
    return 0.92 if character in _WIDE else 0.72 if character.isupper() else 0.58


def fit(words: str, width: float, size: float = SIZE) -> str:
    """Return foreign text made harmless and, if it is wider than `width` pixels, cut in its middle: both ends of a job's name tell.

    >>> fit("llama-70b-pretraining-run-0001", 110, 10)
    'llama-70b…-run-0001'
    """
    words = harmless(words, 400)
    if extent(words, size) <= width:
        return words
    kept = len(words) - 1
    while kept > 1 and extent(_cut(words, kept), size) > width:
        kept -= 1
    return _cut(words, kept)


def _cut(words: str, kept: int) -> str:
    head = (kept + 1) // 2
    return f"{words[:head].rstrip()}…{words[len(words) - (kept - head) :].lstrip()}"


def wrap(words: str, width: float, size: float = SIZE) -> list[str]:
    """Return a text as lines of at most `width` pixels, broken at blanks; a longer word keeps a line of its own.

    >>> wrap("SM fill × tensor issue", 60, 10)
    ['SM fill ×', 'tensor', 'issue']
    """
    lines: list[str] = []
    for word in words.split():
        if lines and extent(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@dataclass(frozen=True)
class Scale:
    """A linear map from values `low` to `high` onto pixels `start` to `end`; values beyond are held at the ends.

    >>> Scale(0, 1, 100, 300)(0.5), Scale(0, 1, 100, 300)(2)
    (200.0, 300.0)
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)
