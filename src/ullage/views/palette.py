"""The colours of pictures and pages, light and dark, and the style sheet rules that use them.

Chosen to be told apart with any colour vision (blue against orange, and a step of lightness between neighbours), text
at a contrast of at least 4.5 to 1 on the paper and marks of at least 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11). Only what is
meant to recede (rules, tracks) is fainter, and what fainter areas say is written beside them.
"""

from __future__ import annotations

from collections.abc import Callable

PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#fbfaf6", "#15181c"),
    "ink": ("#1e2227", "#e9e6df"),
    "muted": ("#5c6167", "#a6abb1"),
    "rule": ("#dcd8ce", "#363b41"),
    "full": ("#e8e4da", "#2a2f35"),
    "ofu": ("#174a72", "#79b6e6"),
    "pale": ("#7290ab", "#6485a3"),
    "loss": ("#a9560a", "#e39a4f"),
    "gain": ("#1f7a5c", "#63c3a0"),
    "shared": ("#5a93c0", "#3f78a8"),
    "free": ("#a88a4c", "#8c7440"),
    "unknown": ("#85888c", "#7d8288"),
    "doubt": ("#9c2f4b", "#ef8fa6"),
    # what a process and a device are doing: neighbours in a lane differ for any colour vision
    "useful": ("#4a88bd", "#4f94cf"),
    "offload": ("#cc7514", "#f0b060"),
    "communication": ("#8e1f3d", "#d9506f"),
    "kernel": ("#17487d", "#4188c9"),
    "collective": ("#b662a6", "#eaa6dc"),
    "memory": ("#3f9468", "#63bd8f"),
    "idle": ("#dedacf", "#343a41"),
}

SANS = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif'


def picture_rules(colour: Callable[[str], str]) -> str:
    """Return the rules for pictures: `f-…` fills and `s-…` strokes; `colour` writes a palette name as a CSS colour."""
    fills = "".join(f".f-{name}{{fill:{colour(name)}}}.s-{name}{{stroke:{colour(name)}}}" for name in PALETTE)
    return f".picture{{font-family:{SANS};font-variant-numeric:tabular-nums}}{fills}"


def standalone_rules() -> str:
    """Return the style sheet of a picture that is a file of its own: colours written out, so that any viewer shows them."""
    light = picture_rules(lambda name: PALETTE[name][0])
    dark = picture_rules(lambda name: PALETTE[name][1])
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def variables() -> str:
    """Return the palette as CSS variables of a page: light, and dark on screens that ask for it."""
    light, dark = ("".join(f"--{name}:{pair[side]};" for name, pair in PALETTE.items()) for side in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}"
        f"{picture_rules(lambda name: f'var(--{name})')}"
    )
