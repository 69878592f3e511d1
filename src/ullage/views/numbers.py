"""Numbers for people: the one place that turns quantities into words."""

from __future__ import annotations

import datetime
from collections.abc import Callable

UNKNOWN = "–"


def percent(value: float | None, digits: int = 0) -> str:
    """Return a ratio as percent, with the digits that a small one needs to be told from 0.

    >>> percent(0.314), percent(0.992, 1), percent(0.0004), percent(1e-7), percent(None)
    ('31 %', '99.2 %', '0.04 %', '< 0.001 %', '–')
    """
    if value is None:
        return UNKNOWN
    if 0 < abs(value) < 5e-6:
        return "< 0.001 %"
    if 0 < abs(value) < 0.01 * 10**-digits and digits < 3:
        return percent(value, digits + 1)
    return f"{value * 100:.{digits}f} %"


def factor(value: float | None) -> str:
    """Return an efficiency with two digits.

    >>> factor(0.7149), factor(None)
    ('0.71', '–')
    """
    return UNKNOWN if value is None else f"{value:.2f}"


def factor_of_chain(value: float) -> str:
    """Return a factor with three digits, so that those of a chain multiply to its end as printed.

    >>> factor_of_chain(0.9481), factor_of_chain(0.01234), factor_of_chain(0.0), factor_of_chain(1.026)
    ('0.948', '0.0123', '0.000', '1.026')
    """
    return f"{value:.3f}" if value >= 0.1 or value < 1e-6 else f"{value:.3g}"


def fixed(value: float, digits: int) -> str:
    """Return a number with so many decimals; what is shown as nothing has no sign.

    >>> fixed(-12.34, 1), fixed(-0.01, 1), fixed(1234.5, 0)
    ('−12.3', '0.0', '1,234')
    """
    shown = f"{abs(value):,.{digits}f}"
    return f"−{shown}" if value < 0 and shown.strip("0.,") else shown


def signed(value: float, write: Callable[[float], str]) -> str:
    """Return a change with its sign; one that is shown as nothing has none.

    >>> signed(-1.5, hours), signed(1.5, hours), signed(0.0, hours), signed(1e-5, hours)
    ('−1.50', '+1.50', '0', '0.000')
    """
    shown = write(abs(value))
    nothing = not any(digit in shown for digit in "123456789")
    return shown if nothing else f"{'−' if value < 0 else '+'}{shown}"


def hours(value: float | None) -> str:
    """Return GPU-hours: whole from 100 on, three digits below.

    >>> hours(86016.2), hours(12.345), hours(0.5), hours(-1e-15), hours(None)
    ('86,016', '12.3', '0.500', '0', '–')
    """
    if value is None:
        return UNKNOWN
    if abs(value) < 1e-9:  # what is left of a sum that comes to nothing; it may be below 0
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def counted(count: float, noun: str, nouns: str = "") -> str:
    """Return a number with what it counts: `noun` for one, else `nouns`, which is the noun with an s where not given.

    >>> counted(1, "kernel"), counted(1200, "kernel"), counted(2, "pass", "passes"), counted(1 / 7, "GPU")
    ('1 kernel', '1,200 kernels', '2 passes', '0.14 GPUs')
    """
    return f"{round(count, 2):,.10g} {noun if count == 1 else nouns or f'{noun}s'}"


def money(value: float | None) -> str:
    """Return an amount, in the currency of the given prices.

    >>> money(1234567.8), money(12.3)
    ('1,234,568', '12.30')
    """
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def moment(milliseconds: int, *, seconds: bool = False) -> str:
    """Return a time in UTC.

    >>> moment(1_786_363_200_000)
    '2026-08-10 12:00'
    """
    when = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def span(window: tuple[int, int]) -> str:
    """Return a window as words, as short as it can be.

    >>> span((1_786_363_200_000, 1_786_449_600_000)), span((1_786_363_200_000, 1_786_363_260_000))
    ('2026-08-10 12:00 to 2026-08-11 12:00 UTC', '2026-08-10 12:00:00 to 12:01:00 UTC')
    """
    short = window[1] - window[0] < 3_600_000
    start, end = (moment(t, seconds=short) for t in window)
    return f"{start} to {end[11:] if start[:10] == end[:10] else end} UTC"


def part_read(complete: bool, read_until: int | None) -> str:
    """Return what a headline says of an answer from a part of what was asked for, before all else; nothing of a complete one.

    >>> part_read(False, 1_786_363_200_000), part_read(False, None), part_read(True, None)
    ('partial, read until 2026-08-10 12:00:00 UTC: ', 'partial: ', '')
    """
    if complete:
        return ""
    return "partial: " if read_until is None else f"partial, read until {moment(read_until, seconds=True)} UTC: "


_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


def flops(value: float | None, unit: str = "FLOP") -> str:
    """Return a count of FLOPs with four digits and the prefix that fits.

    >>> flops(32_938_104_193_024), flops(999_960), flops(0), flops(None)
    ('32.94 TFLOP', '1.000 MFLOP', '0 FLOP', '–')
    """
    if value is None:
        return UNKNOWN
    scaled, prefix = prefixed(value, 4)
    digits = 3 if abs(scaled) < 10 else 2 if abs(scaled) < 100 else 1
    return f"{scaled:.{digits}f} {prefix}{unit}" if prefix else f"{value:,.10g} {unit}"


def size(count: float) -> str:
    """Return bytes with one decimal, in kB, MB or GB.

    >>> size(999), size(1_234_567)
    ('999 B', '1.2 MB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    power = 3 if count >= 1e9 else 2 if count >= 1e6 else 1
    return f"{count / 1000**power:,.1f} {('kB', 'MB', 'GB')[power - 1]}"


def amount(value: float) -> str:
    """Return a count or a rate with three digits and its prefix.

    >>> amount(2.147e12), amount(950.0), amount(999.6e9)
    ('2.15 T', '950', '1 T')
    """
    scaled, prefix = prefixed(value, 3)
    return f"{scaled:.3g} {prefix}".rstrip()


def prefixed(value: float, digits: int) -> tuple[float, str]:
    """Return a value in thousands of thousands and the prefix of these, so that it is below 1,000 when it is shown with so many digits.

    >>> prefixed(1_500_000, 4), prefixed(999_960, 4)[1], prefixed(999_940, 4)[1]
    ((1.5, 'M'), 'M', 'k')
    """
    scaled, steps = float(value), 0
    while abs(scaled) >= 1000 - 0.5 * 10.0 ** (3 - digits) and steps < len(_PREFIXES) - 1:
        scaled, steps = scaled / 1000, steps + 1
    return scaled, _PREFIXES[steps]


def tera(value: float) -> str:
    """Return a rate in units of 10¹², with one decimal below 10,000 as makers print them.

    >>> tera(989.43e12), tera(1978.86e12), tera(10066.3e12), tera(1e12), tera(0.15e12)
    ('989.4', '1,978.9', '10,066', '1', '0.15')
    """
    scaled = value / 1e12
    if scaled < 1:
        return f"{scaled:.2g}"
    return f"{scaled:,.0f}" if scaled >= 10_000 else f"{scaled:,.1f}".removesuffix(".0")


def short_tera(value: float) -> str:
    """Return a rate in units of 10¹² with three digits, as a picture has room for.

    >>> short_tera(989.43e12), short_tera(4.8e12), short_tera(1978.9e12)
    ('989', '4.8', '1,979')
    """
    scaled = value / 1e12
    return f"{scaled:,.0f}" if scaled >= 100 else f"{scaled:.3g}"


def binary_size(count: float) -> str:
    """Return bytes in powers of 1024, with three digits.

    >>> binary_size(8192), binary_size(65536), binary_size(94_906_265), binary_size(256 * 2**20)
    ('8,192', '64 Ki', '90.5 Mi', '256 Mi')
    """
    prefix, scale = next(((p, s) for p, s in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)) if count >= s), ("", 1))
    if count < 16 * 1024:
        return f"{count:,g}"
    return f"{count / scale:.{0 if count % scale == 0 or count >= 100 * scale else 1}f} {prefix}"


def short_count(value: float) -> str:
    """Return a size as an axis has it: in powers of 1024 where it is a multiple of one.

    >>> short_count(256), short_count(65536), short_count(50 * 2**20), short_count(1e6), short_count(0.25)
    ('256', '64 Ki', '50 Mi', '1e+06', '0.25')
    """
    for size, prefix in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if value >= 16 * 1024 and value % size == 0:
            return f"{value / size:,.0f} {prefix}"
    return f"{value:,g}" if value < 1e5 else f"{value:g}"
