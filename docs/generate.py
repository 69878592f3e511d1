"""Print the pages of docs/ that come from the code: metrics, fields, GPUs, models, commands, formats. `--check` fails when one is stale."""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ullage.demo import demo
from ullage.metrics.metric import METRICS, Metric
from ullage.render.fleet import view
from ullage.render.svg.chain import of_fleet
from ullage.reports.fleet.fleet import FleetReport
from ullage.views.draw import SMALL, WIDE, Scale, box, wrap
from ullage.views.draw import picture as picture_of
from ullage.views.draw import text as text_of
from ullage.views.numbers import percent
from ullage.views.text import text

FOLDER = Path(__file__).parent
NOTE = "<!-- Printed from the code by `make docs`; edit the docstrings, not this page. -->\n"


def metrics() -> str:
    """Every metric: equation, unit, source, and its whole page."""
    parts = [NOTE, "# Metrics\n", "Each is defined once, as the body of a Python function; this page is printed from it.\n"]
    for m in sorted(METRICS.values(), key=lambda m: m.name):
        parts.append(f"## {m.name}\n\n`{m.name} = {m.equation}`, unit {m.unit}. Source: {m.source}.\n\n{_fenced(m)}\n")
    return "\n".join(parts)


def _fenced(metric: Metric) -> str:
    lines, example = [], False
    for line in metric.page.splitlines():
        starts = line.startswith(">>>")
        if starts and not example:
            lines += ["```python", f">>> from {metric.function.__module__} import {metric.name}"]
        if example and not line.strip():
            lines += ["", "```"]  # the blank line ends the example for doctest
            example = False
        example = example or starts
        lines.append(line)
    return "\n".join([*lines, "", "```"] if example else lines)


def fields() -> str:
    """What is read from telemetry, and under which names."""
    from ullage.sources.naming.names import NAMES
    from ullage.tables import FIELDS

    def known(field: str) -> str:
        return ", ".join(f"`{name}` ({unit})" for unit, names in NAMES.get(field, {}).items() for name in names.split())

    rows = [f"| `{f.name}` | {f.unit} | {f.kind} | {f.meaning} | {known(f.name)} |" for f in FIELDS.values()]
    head = "| field | unit | kind | meaning | also known as |\n|---|---|---|---|---|\n"
    return (
        f"{NOTE}\n# Fields\n\nThe columns of the samples table, in SI units, and the names under which exporters write them.\n\n"
        + head
        + "\n".join(rows)
        + "\n"
    )


def gpus() -> str:
    """Every GPU with its peaks and where they come from."""
    from ullage.gpus.chip import CHIPS
    from ullage.gpus.links import MIB

    def shown(value: str) -> str:
        return value.replace("|", "/") or "–"

    peaks, joined = [], []
    for chip in CHIPS.values():
        rates = ", ".join(f"{p} {chip.peak(p) / 1e12:,.1f}" for p in chip.precisions)
        clock = f"{chip.tensor_clock / 1e6:,.0f} ({chip.tensor_clock_status})"
        peaks.append((chip.name, chip.architecture, str(chip.sms), clock, rates, chip.confidence, shown(chip.warning), shown(chip.source)))
        links = [f"{link.name} {link.bandwidth / 1e9:,g} ({link.per_direction / 1e9:,g})" for link in (chip.link, chip.host_link) if link]
        pcie = f"{chip.pcie.generation} x{chip.pcie.lanes} ({chip.pcie.per_direction / 1e9:.1f})" if chip.pcie else "–"
        cache = "–" if chip.l2 is None else f"{chip.l2 / MIB:g}"
        rate = "–" if chip.l2_bandwidth is None else f"{chip.l2_bandwidth / 1e12:.1f}"
        memory = f"{chip.memory / 1e9:,.0f} GB, {chip.bandwidth / 1e12:.2f} TB/s"
        joined.append((chip.name, memory, shown(", ".join(links)), pcie, cache, rate, shown(chip.links_source)))
    return (
        f"{NOTE}\n# GPUs\n\nPeaks are SMs × FLOPs per cycle × tensor clock (OFU paper, eq. 5), dense. "
        "How to add one: [adding-a-gpu.md](adding-a-gpu.md).\n\n"
        + _table(("GPU", "architecture", "SMs", "tensor clock, MHz", "dense peaks, TFLOP/s", "confidence", "caution", "source"), peaks)
        + "\n## Memory, links and caches\n\nA link's rate is of both directions together, as its maker prints it, and in brackets of one. "
        "PCIe is generation and lanes, and its rate in one direction less the line code. A dash is what nobody states or the GPU lacks.\n\n"
        + _table(("GPU", "memory", "links, GB/s", "PCIe, GB/s", "L2, MiB", "L2, TB/s", "source"), joined)
    )


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |\n" for cells in (titles, *rows)]
    return "".join([lines[0], "|---" * len(titles) + "|\n", *lines[1:]])


def commands() -> str:
    """The help of every command, and what their exit statuses say."""
    from ullage.cli import cli
    from ullage.cli._command_table import command_table
    from ullage.cli._exit_status import table

    parts = [NOTE, "# Commands\n"]
    context = _context(cli, "ullage")
    parts.append(f"```\n{cli.get_help(context)}\n```\n")
    parts.append(f"## Exit statuses\n\nFor scripts; they are the same for every command.\n\n{table()}\n")
    parts.append(f"## All commands\n\n{_GRAMMAR}\n\n{command_table()}\n")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        own = _context(command, f"ullage {name}")
        parts.append(f"## ullage {name}\n\n```\n{command.get_help(own)}\n```\n")
        if name in ("audit", "bench", "cupti", "simulate", "store", "trace"):  # commands whose parts are files of their own
            parts += [_subcommand(command, own, part) for part in command.list_commands(own)]  # type: ignore[attr-defined]
    return "\n".join(parts)


_GRAMMAR = """A command has a name of its own (`ullage top`), or belongs to a group and is named after it (`ullage audit mfu`). Some
groups are commands, too (`ullage trace`). What a command reads is an argument; only `ullage top` takes it as an
option (`--source`), because it reads this machine without one. A window of telemetry is `--since` and `--until` (a
time, or a span before now), a window of a trace is `--window`. `--json` prints the answer for programs. `--out`
writes it to a file; the end of the file's name chooses the format. Only `run`, whose stdout is the program's, takes a
file for JSON. Statuses 0, 1 and 2 mean the same everywhere. `--help` shows the options that matter most, `--help-all`
all of them."""


def _context(command: click.Command, name: str) -> click.Context:
    """Return a context with the command line's own settings, for the help of all options.

    A command forgets the help option that it was first asked for."""
    from ullage.cli import cli
    from ullage.cli._question_command import WHOLE_HELP

    command._help_option = None
    context = click.Context(command, info_name=name, max_content_width=110, terminal_width=110, **cli.context_settings)
    context.meta[WHOLE_HELP] = True
    return context


def _subcommand(group: Any, context: click.Context, name: str) -> str:
    command = group.get_command(context, name)
    assert command is not None
    own = _context(command, f"{context.info_name} {name}")
    return f"### {own.info_name}\n\n```\n{command.get_help(own)}\n```\n"


def models() -> str:
    """Every architecture with a formula, and the names by which configurations call it."""
    from ullage.models.model import MODELS

    members = list({id(m): m for m in MODELS.values()}.values())
    parts = [
        f"{NOTE}\n# Architectures\n",
        f"{len(members)} families under {sum(len(m.names) for m in members)} names, found by the class or `model_type` of a configuration. "
        "How to add one: [adding-a-model.md](adding-a-model.md).\n",
    ]
    for kind in sorted({m.kind for m in members}):
        rows = [f"| `{m.family}` | {m.summary} | {', '.join(f'`{n}`' for n in m.names)} |" for m in members if m.kind == kind]
        parts.append(f"## {kind}\n\n| family | what | names |\n|---|---|---|\n" + "\n".join(sorted(rows)) + "\n")
    return "\n".join(parts)


def sources() -> str:
    """The formats that are read."""
    from ullage.sources.jobs.job import JOB_SOURCES
    from ullage.sources.source import SOURCES
    from ullage.traces.trace import TRACES

    traces = "\n".join(f"| `{t.name}` | {t.reads} |" for t in sorted(TRACES.values(), key=lambda t: t.name))
    telemetry = "\n".join(f"| `{s.name}` | {s.reads} |" for s in sorted(SOURCES.values(), key=lambda s: s.name))
    jobs = "\n".join(f"| `{s.name}` | {s.reads} |" for s in sorted(JOB_SOURCES.values(), key=lambda s: s.name))
    return (
        f"{NOTE}\n# What is read\n\nFormats are recognised by content. "
        "How to add one: [a source](adding-a-source.md), [a trace format](adding-a-trace.md).\n\n"
        f"| telemetry | reads |\n|---|---|\n{telemetry}\n\n| job records | reads |\n|---|---|\n{jobs}\n\n"
        f"| traces | reads |\n|---|---|\n{traces}\n\n{_devices_and_units()}"
    )


def _devices_and_units() -> str:
    """Which GPU a reading is of, and in which unit, with the limits that the code has."""
    from ullage.sources.naming.fields import CLOCKS, NO_CLOCK
    from ullage.sums import ratio_units as units

    fitting, lowest, highest = (f"{value / 1e6:,.0f} MHz" for value in CLOCKS["sm_clock"])
    return f"""## Which GPU a reading is of

A GPU is its UUID. Without one (dmon, many tables, omnistat) it is `cluster/host/number`, as far as they are known: the cluster by a
label, by `--cluster`, or by the folder of AcmeTrace's layout. A dmon log is of the host that its file is named after; logs of one
name in different folders are different hosts, named by the shortest path that tells them apart. Readings that claim to be of one
GPU at one time and differ are flagged, and the first counts.

## Which unit a reading is in

| name | unit |
|---|---|
| `DCGM_FI_PROF_*`, `*_ratio`, Ullage's own names | ratio, by definition |
| `DCGM_FI_DEV_GPU_UTIL`, `*_percent`, AMD's activities, dmon, NVML | percent, by definition: 0.5 is half a percent |
| others | as [Fields](fields.md) lists them |

A reading that fits the unit of its name is never converted for itself. Three things are settled against a name, and each is flagged:

- **Clocks** are one number in one unit: a reading that is no clock in the unit of its name (an SM clock from {fitting} to {highest}) is
  read in the one of Hz, kHz, MHz and GHz in which it is one ({lowest} to {highest}). What is below {NO_CLOCK / 1e6:g} MHz in every unit
  is impossible, and so is a clock of 0 while the tensor pipes work (above {units.WORKING:.1%}).
- **Watts** above 5,000 are milliwatts; **MiB** above 1 TiB are bytes.
- **Ratios that are percent** can't be told by one number: 0.4 is 0.4 or 0.4 %. The exporter of a host is judged, by all that it says
  in one scrape:
    - *percent*, where an engine, SM or pipe reads above {units.CERTAINLY_PERCENT:g} (and at most {100 * units.HIGHEST_RATIO:.0f}), unless
      the SM or the engine that it works in says at most {units.HIGHEST_RATIO};
    - *ratio*, where "GPU utilization" is at least {units.STEADY_UTILIZATION:.0%} and the busiest gauge, read as a ratio, at least
      {units.STEADY_SHARE:.0%} of it;
    - *percent*, where the gauges of an idle host, read as ratios, have added up to {units.ENOUGH_READINGS:g}, and "GPU utilization",
      which must have been above 0 in {units.AWAKE_SCRAPES} scrapes, to at most {units.TOO_LITTLE_UTILIZATION:.0%} of that.

  What a scrape says holds until another says otherwise; the first also holds for the time before it. So a change of unit is found at
  the first busy scrape after it. A store remembers it (`units.json`): an idle hour that comes later reads alike, one that came
  earlier is put right. Of an exporter that has said nothing yet, readings stay as their names say. What lies more
  than ten minutes outside `--since` and `--until` is not read and says nothing: a window in which an exporter says too little is better
  asked of a store.
"""


def gpu_checks() -> str:
    """What only a real GPU can tell, and what was measured so far."""
    sys.path.insert(0, str(FOLDER.parent))  # the folder gpu/ is no part of the package
    from gpu.page import page

    return f"{NOTE}\n{page()}"


def readme() -> str:
    """The README with the demonstration's own output in it, and the picture beside it."""
    report = _demo()
    shown = text(view(report, top=4), width=110).split("\n\nwhose GPU-hours")[0]
    before, rest = (FOLDER.parent / "README.md").read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n```console\n$ ullage demo\n{shown}\n…\n```\n{END}{after}"


RUN = re.compile(r"<!-- run: (.*?) -->\n.*?<!-- end of run -->", re.DOTALL)


def shown(name: str) -> str:
    """A page with the output of the commands that it shows."""
    return RUN.sub(_ran, (FOLDER / name).read_text(encoding="utf-8"))


def showing() -> list[str]:
    """Return the pages that show the output of commands."""
    pages = (page for page in sorted(FOLDER.rglob("*.md")) if RUN.search(page.read_text(encoding="utf-8")))
    return [page.relative_to(FOLDER).as_posix() for page in pages]


def _ran(found: re.Match[str]) -> str:
    """Return a block of commands with what they print, run one after the other in a folder of their own, as on a machine without CUPTI."""
    from click.testing import CliRunner

    from ullage.cli import cli

    shown, runner = [], CliRunner(env={"ULLAGE_CUPTI": "/there is none", "COLUMNS": "110"})
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for line in found[1].split("; "):
            result = runner.invoke(cli, shlex.split(line)[1:], catch_exceptions=False)
            shown += [f"$ {line}", result.stdout.rstrip() + "\n"]
    return f"<!-- run: {found[1]} -->\n```console\n" + "\n".join(shown).rstrip() + "\n```\n<!-- end of run -->"


def sass() -> str:
    """The page on machine code with its tables: every instruction compiled for every architecture, which takes a minute."""
    from ullage.kernels.sass import outcomes
    from ullage.render import sass_tables

    rows = outcomes.table()
    hopper = [one for _, found in rows for one in found if one.architecture == "sm_90a"]
    blocks = {"sass: paper": sass_tables.paper(hopper), "sass: architectures": sass_tables.markdown(rows)}
    return sass_tables.refreshed((FOLDER / "sass.md").read_text(encoding="utf-8"), blocks)


def counters() -> str:
    """The page on counters with what its commands say, and DCGM's fields by the metrics of three generations."""
    from ullage.render.sass_tables import refreshed

    return refreshed(shown("counters.md"), {"twins": _twins(("GH100", "GA100", "GB100"))})


def _twins(chips: tuple[str, ...]) -> str:
    """Return a row for each of DCGM's fields: its metric on the first chip that has it, and where it is called otherwise."""
    from ullage.cupti.metric_names.dcgm_equivalents import twins
    from ullage.cupti.metric_names.dictionary import base

    known = {chip: {twin.dcgm: twin for twin in twins(chip)} for chip in chips}
    rows = []
    for number in sorted({number for found in known.values() for number in found}):
        names = {chip: base(found[number].metric) for chip, found in known.items() if number in found}
        first = next(found[number] for found in known.values() if number in found)
        others = [f"{chip}: `{name}`" for chip, name in names.items() if name != base(first.metric)]
        lacking = [f"not on {chip}" for chip in chips if chip not in names]
        form = "share" if first.factor < 1 else "rate"
        rows.append(f"| {number} | `{first.field}` | `{base(first.metric)}` | {form} | {', '.join(others + lacking)} |")
    return "\n".join(["| DCGM | field | metric | as | but |", "|---|---|---|---|---|", *rows])


def stalls() -> dict[str, Callable[[], str]]:
    """The page on stalls with its report, and its flame graph: kernels are compiled, the samples of them made up."""
    sys.path.insert(0, str(FOLDER))
    import stall_example

    from ullage.render.sass_tables import refreshed

    def page() -> str:
        return refreshed(shown("stalls.md"), {"stalls: report": stall_example.block(stall_example.SHOWN)})

    return {"stalls.md": page, "images/stalls.svg": functools.partial(stall_example.made, stall_example.DRAWN)}


def benches() -> dict[str, Callable[[], str]]:
    """The page on microbenchmarks, and the rooflines of what was measured."""
    sys.path.insert(0, str(FOLDER))
    import bench_tables

    drawn = {name: functools.partial(str, picture) for name, picture in bench_tables.pictures().items()}
    return {"benches.md": bench_tables.page, **drawn}


def timeline() -> str:
    """The timeline of a training job with a slow rank."""
    from click.testing import CliRunner

    from ullage.cli import cli

    runner = CliRunner()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        runner.invoke(cli, ["simulate", "trace", "--straggler", "1", "--out", "job"], catch_exceptions=False)
        runner.invoke(cli, ["trace", "job", "--out", "trace.svg"], catch_exceptions=False)
        return Path("trace.svg").read_text(encoding="utf-8")


def schemas() -> dict[str, Callable[[], str]]:
    """The JSON Schemas, a file a kind."""
    import schema_files

    return schema_files.schema_pages()


def chain() -> str:
    """The waterfall of a simulated job from peak to MFU."""
    from click.testing import CliRunner

    from ullage.cli import cli

    runner = CliRunner()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        runner.invoke(cli, ["simulate", "job", "--seed", "3", "--out", "job"], catch_exceptions=False)
        sources = [f"job/{name}" for name in ("telemetry.parquet", "traces", "config.json", "gemms.json")]
        asked = ["waterfall", *sources, "--price", "2", "--ceiling", "750e12", "--out", "waterfall.svg"]
        runner.invoke(cli, asked, catch_exceptions=False)
        return Path("waterfall.svg").read_text(encoding="utf-8")


def looks() -> str:
    """A terminal of 120 by 22 in which `ullage top` looks at a simulated host."""
    import io

    import click
    from click.testing import CliRunner
    from rich.console import Console
    from rich.text import Text

    from ullage.cli import cli
    from ullage.live.sampling.course import Course
    from ullage.live.sampling.places import interval, recent
    from ullage.problems import Problems
    from ullage.render.top import WatchedMachine, fitted_view
    from ullage.render.top_screen import TopScreen
    from ullage.sources.source import Options, read_samples
    from ullage.views.text import text

    def paint(cell: str, value: float | None) -> str:
        return cell if value is None else click.style(cell, fg="green" if value >= 0.8 else "yellow" if value >= 0.2 else "red")

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        asked = ["simulate", "--gpus", "8", "--hours", "1", "--faults", "none", "--counters", "--out", "host"]
        CliRunner().invoke(cli, asked, catch_exceptions=False)
        samples = recent(read_samples("host/samples", Options(), Problems()))
    course = Course(interval(samples, 10.0))
    course.add([samples])
    shown = fitted_view(WatchedMachine(course, "node-17 by NVML", screen=TopScreen(sort="ofu", chosen=2)), 120, 22)
    console = Console(file=io.StringIO(), record=True, width=120, height=22, force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text(shown, width=120, fill=True, paint=paint)))
    drawn = console.export_svg(title="ullage top", unique_id="top")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.S)  # nothing is loaded from elsewhere


def picture() -> str:
    """The waterfall of the demonstration."""
    return of_fleet(_demo())


SIX = {  # an example in round numbers: each asks more than the one above it
    "GPU utilization": (0.98, "some kernel ran"),
    "SM activity": (0.80, "an SM had a warp"),
    "tensor activity": (0.50, "a tensor pipe worked"),
    "OFU": (0.44, "× SM clock / tensor clock: FLOPs that the hardware did"),
    "HFU": (0.42, "less padding of tiles: FLOPs that the program asked for"),
    "MFU": (0.33, "less what is computed twice: FLOPs that the model needs"),
}


def six_numbers() -> str:
    """The six numbers that are called utilization, of one example."""
    scale, rows = Scale(0.0, 1.0, 130.0, WIDE - 330.0), []
    for number, (name, (value, what)) in enumerate(SIX.items()):
        top, colour, lines = 34.0 * number, "pale" if number < 3 else "ofu", wrap(what, 270, SMALL)
        rows += [text_of(0, top + 16, name, bold=number >= 3), box(scale.start, top, scale.end - scale.start, 22, "full")]
        rows += [
            box(scale.start, top, scale(value) - scale.start, 22, colour),
            text_of(scale.end + 10, top + 16, percent(value), bold=True),
        ]
        first = top + 16 - 7 * (len(lines) - 1)
        rows += [text_of(scale.end + 60, first + 14 * k, words, size=SMALL, colour="muted") for k, words in enumerate(lines)]
    described = ", ".join(f"{name} {percent(value)} ({what})" for name, (value, what) in SIX.items())
    return str(picture_of("six", "Six numbers of one job, called utilization", described, (WIDE, 34.0 * len(SIX)), *rows, standalone=True))


@functools.cache
def _demo() -> FleetReport:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return demo(Path("ullage-demo"), gpus=256, hours=24, seed=0, progress=lambda _: None).report


BEGIN, END = "<!-- demo: printed by `make docs` from `ullage demo` -->", "<!-- end of demo -->"
PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics,
    "fields.md": fields,
    "gpus.md": gpus,
    "commands.md": commands,
    "models.md": models,
    "sources.md": sources,
    "gpu-checks.md": gpu_checks,
    "images/demo.svg": picture,
    "images/trace.svg": timeline,
    "images/waterfall.svg": chain,
    "images/glossary.svg": six_numbers,
    "images/top.svg": looks,
    "../README.md": readme,
}
PAGES |= {name: functools.partial(shown, name) for name in showing()} | {"counters.md": counters} | benches() | schemas()
SLOW: dict[str, Callable[[], str]] = {"sass.md": sass, **stalls()}  # they compile: not asked whether they are stale, but by the long tests


def stale() -> list[str]:
    """Return the pages that no longer say what the code says."""
    return [name for name, page in PAGES.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != page()]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale())}; run `make docs`" if stale() else 0)
    for name, page in (PAGES | SLOW).items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
