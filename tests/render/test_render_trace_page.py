"""The page and the table of a run's report: whole, self-contained, and nothing foreign gets through."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import pyarrow.parquet as parquet

from tests.traces.drawn_runs import made, many, use_case_4
from ullage.problems import Problems
from ullage.profiles import Profile
from ullage.render.trace import view
from ullage.render.trace_parquet import SCHEMA
from ullage.render.trace_parquet import parquet as as_parquet
from ullage.reports.trace.trace import TraceReport, TraceRequest, trace
from ullage.sums.lanes.kernels import Kernels
from ullage.sums.lanes.run import Run
from ullage.totals import HostTotals, Region
from ullage.views.html import html
from ullage.views.names import kernel

HOSTILE = '<script>alert("1")</script>\x1b[31m'


def report(run: Run, place: str = "rank0.json") -> TraceReport:
    problems = Problems()
    problems.note(f"a note about {place}")
    profile = Profile((place,), "kineto", tuple(c.recording for c in run.captures), run, (), problems, "ai")
    return trace(profile, "first-last", TraceRequest("ai", price=2.0))


class Words(HTMLParser):
    """The page's text, and the elements left open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words, self.open = [], []  # type: ignore[var-annotated]
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_answers_first_and_has_pictures_and_tables() -> None:
    # 0.18 of two devices' second: 1.637 GPU-seconds short of full, 65 % of them (ln 0.33 / ln 0.1815) by orchestration
    page = html(view(report(use_case_4())))
    parsed = Words(page)
    said = "".join(parsed.words)
    assert not parsed.open
    assert "Device parallel efficiency 18 %" in said and "1.637 GPU-seconds fall short of full, 65 % of them" in said
    assert [
        word for word in ("Efficiency", "Over time", "What the loss is made of", "Devices", "Processes", "Notes") if word not in said
    ] == []
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_the_page_loads_nothing_and_is_the_same_each_time() -> None:
    page = html(view(report(use_case_4())))
    assert page == html(view(report(use_case_4())))
    assert set(re.findall(r"https?://[^\"<]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page.replace("&#x27;", "'") and page.count("<script") == 1


def test_foreign_names_are_escaped_on_the_page() -> None:
    run = made(2, many(500, 10_000), 10_000, steps=((HOSTILE, 0, 5_000), (f"2{HOSTILE}", 5_000, 10_000)))
    kernels = Kernels(((HOSTILE, "kernel", 1, 100, 100, 0),))
    hostile = replace(
        run,
        captures=tuple(replace(c, kernels=kernels) for c in run.captures),
        devices=tuple(replace(d, name=HOSTILE) for d in run.devices),
        processes=tuple(replace(p, label=HOSTILE, host=HOSTILE) for p in run.processes),
    )
    page = html(view(report(hostile, HOSTILE)))
    assert page.count("<script") == 1 and "\x1b" not in page and "&lt;script&gt;" in page


def test_a_source_of_sums_has_a_page_without_a_timeline() -> None:
    region = Region("Global", HostTotals(2, 100, useful_time=80, offload_time=0, max_busy_time=50), None, {})
    page = html(view(trace(Profile(("talp.json",), "talp", (), None, (region,), Problems(), "talp"), "first-last")))
    assert "Parallel efficiency 40 %" in page and "Over time" not in page


def test_the_table_has_a_row_for_each_efficiency_of_each_part() -> None:
    table = parquet.read_table(io.BytesIO(as_parquet(report(use_case_4()))))
    assert table.schema.names == SCHEMA.names and table.schema.metadata[b"mode"] == b"ai"
    rows = {(r["part"], r["name"], r["metric"]): r for r in table.to_pylist()}
    assert len(rows) == table.num_rows  # no two rows for one thing
    whole = rows["run", "run", "device_load_balance"]
    # (330 + 33) / (2 × 330)
    assert (whole["value"], whole["parent"], whole["unit"], whole["tree"]) == (0.55, "device_parallel_efficiency", "1", "device")
    assert rows["rank", "rank 1", "useful_time"]["value"] == 0.045 and rows["rank", "rank 1", "useful_time"]["unit"] == "s"
    assert rows["device", "GPU 0 (G)", "kernel_time"]["value"] == 0.33


def test_a_kernel_s_name_keeps_what_tells_it() -> None:
    assert kernel("void cutlass::Kernel2<cutlass_80_tensorop>(Params)") == "cutlass::Kernel2<cutlass_80_tensorop>"
    assert kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)") == "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    assert kernel("void at::native::(anonymous namespace)::norm<float, (int)4>(T*)") == "at::native::norm<float, (int)4>"
    assert kernel("void <>()") == "<>"
