"""Every number that a waterfall, a fleet report, a product's and a step's ledger show is in their data."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.benches.bench_results import of_bench, slower
from tests.benches.test_gemm_ofu import recording, three
from tests.command_line import ask
from tests.fleet import sample_reports
from tests.render.forms import plain, untold
from ullage import audit_mfu, flops, waterfall
from ullage import gemm as ask_gemm
from ullage.audit.counter import CounterAnswer, compared
from ullage.audit.counter_cases import EXAMPLES
from ullage.benches.bench import BENCHES
from ullage.cupti.metric_names import changes, dictionary
from ullage.kernels.tiling import TiledProduct
from ullage.render import audit as render_audit
from ullage.render import audit_fleet as render_audit_fleet
from ullage.render import bench, drift, fleet_document
from ullage.render import counter as render_counter
from ullage.render import counter_changes as render_counter_changes
from ullage.render import fleet as render_fleet
from ullage.render import flops as render_flops
from ullage.render import gemm as render_gemm
from ullage.render import gemm_ofu as render_gemm_ofu
from ullage.render import gemm_sweep as render_gemm_sweep
from ullage.render import peaks as render_peaks
from ullage.render import waterfall as chain
from ullage.reports.audit.counter import CounterReport
from ullage.reports.audit.fleet import Audited, FleetAudit
from ullage.reports.audit.peaks import audit_peaks
from ullage.reports.bench.bench import bench_report
from ullage.reports.bench.drift import drift_report
from ullage.reports.gemms import ofu as gemm_ofu
from ullage.reports.gemms.gemm import GemmRequest, GemmSweep, gemm, sweep
from ullage.simulate.job import JobPlan, job
from ullage.simulate.job_files import JobFiles, write
from ullage.views.html import html
from ullage.views.markdown import markdown
from ullage.views.notebook import notebook
from ullage.views.text import text
from ullage.views.view import View

PERCENT, TERA, GIGA, MEGA = 100.0, 1e-12, 1e-9, 1e-6
LEFT_OUT = r"…\s+[\d,]+ more"  # rows that a short form lacks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> JobFiles:
    return write(job(JobPlan(ranks=2, steps=2, seed=3)), tmp_path_factory.mktemp("job"))


def test_a_waterfall(made: JobFiles) -> None:
    for more in ({"price": 2.0, "ceiling": 750e12}, {}, {"mfu": 0.2}):
        report = waterfall(made.telemetry, made.traces, made.config, made.gemms, **more)
        data = chain.record(report)
        for form in forms_of(chain.view(report)):
            assert untold(form, data, scales=(PERCENT, TERA)) == []
            assert data["answer"] in " ".join(form.replace("**", "").split())


def test_the_kernels_of_a_waterfall(tmp_path: Path) -> None:
    made = write(job(JobPlan(ranks=1, steps=1, seed=3, shapes=True)), tmp_path)
    for report in (waterfall(made.telemetry, made.traces, made.config, made.gemms), waterfall(trace=made.traces)):
        data = chain.record(report)
        first, *_ = data["kernels"]["rows"]
        for form in forms_of(chain.view(report)):
            assert untold(form, data, scales=(PERCENT, TERA)) == []
            said = " ".join(form.replace("\\", "").split())
            assert data["kernels"]["answer"] in said and first["because"] in said and first["remedies"][0]["what"] in said


def test_a_fleet_report() -> None:
    report = sample_reports.report()
    data, known = fleet_document.record(report), ("10 points",)  # within which jobs are counted
    view = render_fleet.view(report)
    for form in (text(view, whole=True), plain(html(view)), markdown(view)):
        assert untold(re.sub(LEFT_OUT, "", form), data, known, (PERCENT,)) == []


@pytest.mark.parametrize(
    "words",
    [
        ("4096", "4096", "4096", "--gpu", "H100 SXM"),
        ("1000", "777", "512", "--gpu", "H100 SXM", "--kernel", "nvjet_sm90_hsh_256x160_64x4_2x1", "--ofu", "0.3"),
        ("1000", "777", "512", "--tile", "128x128"),
    ],
)
def test_a_product(words: tuple[str, ...]) -> None:
    said, data = ask("gemm", *words), ask("gemm", *words, "--json").json
    assert said.code == 0 and untold(said.out, data, scales=(GIGA, MEGA)) == []


def test_a_product_and_a_sweep_in_every_form() -> None:
    kernel = "nvjet_sm90_hsh_256x160_64x4_2x1"
    for asked in (GemmRequest(kernel=kernel, ofu=0.3, gpu="H100 SXM"), GemmRequest(tile=(128, 128), split_k=4), GemmRequest()):
        report = gemm(TiledProduct(1000, 777, 512), asked)
        forms = forms_of(render_gemm.view(report))
        assert [untold(form, render_gemm.record(report), scales=(GIGA, MEGA)) for form in forms] == [[]] * 4
    swept = GemmSweep(tuple(sweep([TiledProduct(size, size, size) for size in range(128, 4097, 128)], GemmRequest())))
    forms = forms_of(render_gemm_sweep.view(swept))
    assert [untold(form, render_gemm_sweep.record(swept)) for form in forms] == [[]] * 4


def forms_of(view: View) -> list[str]:
    """Return a view as text, as a page's words, as Markdown and as a notebook's words, without how many rows are left out."""
    made = [text(view, whole=True), plain(html(view)), markdown(view), plain(notebook(view))]
    return [re.sub(r"…\s+[\d,]+ more", "", form) for form in made]


@pytest.mark.parametrize("more", [{}, {"step_time": 21.0, "gpus": 2, "gpu": "H100 SXM"}, {"recompute": "full"}, {"forward_only": True}])
def test_a_step(more: dict[str, Any], made: JobFiles) -> None:
    report = flops(made.config, **more)
    tiled = flops(made.config, tiles=True, **more)
    data = render_flops.record(tiled)
    for view in (render_flops.view(report), render_flops.view(tiled)):
        assert [untold(form, data, ("16",)) for form in forms_of(view)] == [[]] * 4
    assert str(report) == ask("flops", made.config, *_options(more)).out


def _options(asked: dict[str, Any]) -> list[str]:
    """Return the words of a call as options of the command."""
    words = []
    for name, value in asked.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


SCALES = (PERCENT, TERA, GIGA, MEGA, 1e-3, 1e3, 1e6, 1e9, 2**-10, 2**-20)  # the units of the benches' columns, from SI
BENCHES.load()


@pytest.mark.parametrize("name", list(BENCHES))
def test_a_bench(name: str) -> None:
    report = bench_report([of_bench(name, problems={1: "the driver refused it after 17 tries"})])
    data = bench.record(report)
    view = bench.view(report)
    for form in (text(view), text(view, width=400), text(view, whole=True), markdown(view), plain(html(view))):
        assert untold(re.sub(LEFT_OUT, "", form), data, scales=SCALES) == []
    numbers = [*csv.DictReader(io.StringIO(bench.numbers_csv(report)))]
    cells = [cell for table in report.tables for cell in table.cells]
    assert len(numbers) == sum((cell.value is not None) + len(cell.published) for cell in cells)
    assert {float(row["value"]) for row in numbers if row["GPU"] == report.gpu} == {c.value.value for c in cells if c.value is not None}


def test_all_benches_and_what_was_not_measured() -> None:
    report = bench_report([of_bench("wgmma"), of_bench("memory-latency", factor=1.07)], list(BENCHES))
    view = bench.view(report)
    for form in (text(view), markdown(view), plain(html(view))):
        assert untold(re.sub(LEFT_OUT, "", form), bench.record(report), scales=SCALES) == []


def test_a_drift() -> None:
    before = [of_bench("memory-latency"), of_bench("wgmma"), of_bench("memory-bandwidth")]
    for now in (before, [slower(one, 0.87, clock=0.93) for one in before]):
        report = drift_report(now, before)
        view = drift.view(report)
        for form in (text(view), markdown(view), plain(html(view))):
            assert untold(form, drift.record(report), scales=SCALES) == []


def test_ofu_beside_mfu_of_known_products() -> None:
    report = gemm_ofu.gemm_ofu(recording(three()))
    limits = ("2 points", "2 pp", "5 pp", "4", "1")  # limits, and the numbers of the paper's figures
    for form in forms_of(render_gemm_ofu.view(report)):
        assert untold(form, render_gemm_ofu.record(report), limits, SCALES) == []


@pytest.mark.parametrize("asked", [(0.54, 0.26), (0.40, 0.41), (0.60, 0.20), (0.31, 0.43)])
def test_an_audit_of_an_mfu(asked: tuple[float, float], made: JobFiles) -> None:
    report = audit_mfu(made.config, reported=asked[0], ofu=asked[1], gpu="H100 SXM")
    data = render_audit.record(report)
    tried = str(len(report.finding.considered))
    assert [untold(form, data, [tried], (PERCENT,)) for form in forms_of(render_audit.view(report))] == [[]] * 4


def test_an_audit_of_a_fleet(made: JobFiles) -> None:
    findings = [audit_mfu(made.config, reported=mfu, ofu=ofu).finding for mfu, ofu in ((0.54, 0.26), (0.40, 0.41), (0.60, 0.20))]
    jobs = tuple(Audited(f"job-{place}", None, 8, "H100", finding) for place, finding in enumerate(findings))
    left_out = (("a", "it is short"), ("b", "it is short"), ("c", "--configs has no file that is called by the job's id"))
    report = FleetAudit(jobs, left_out, ("something",))
    data = render_audit_fleet.record(report)
    told = [str(len(report.of("agrees"))), str(len(report.of("wrong", "unexplained")))]
    forms = forms_of(render_audit_fleet.view(report))
    assert [untold(form, data, told) for form in forms] == [[]] * 4
    for form in forms:
        assert "job-0" in form and "2 jobs: it is short (a, b)" in form
    assert "job-1" in forms[0] and "job-1" in forms[1] and "job-1" not in str(report)  # it agrees: for files and pages


def test_an_audit_of_peaks_and_of_a_function() -> None:
    peaks = audit_peaks(["H200=989", "H100=1979", "A100 PCIe=312", "nothing=3"])
    told = [str(len(peaks.rows)), "4", "3", "2"]
    forms = forms_of(render_peaks.view(peaks))
    assert [untold(form, render_peaks.record(peaks), told, (TERA,)) for form in forms] == [[]] * 4
    counter = CounterReport(
        "mine:flops", "mine 1.0", tuple(compared(one, CounterAnswer(2 * compared(one, CounterAnswer(1)).causal)) for one in EXAMPLES[:4])
    )
    forms = forms_of(render_counter.view(counter))
    assert [untold(form, render_counter.record(counter)) for form in forms] == [[]] * 4


def test_what_changed_between_counter_metrics() -> None:
    before, after = ("GH100", "12.9"), ("GH100", "13.1")
    found = changes.between(dictionary.metrics(*before), dictionary.metrics(*after))
    report = render_counter_changes.CounterChanges(before, after, found)
    data = render_counter_changes.record(report)
    forms = forms_of(render_counter_changes.view(report, everything=True))
    for row in data["came"]:
        assert all(row["name"] in form.replace("\\", "") for form in forms)
    assert all("16 came, 0 went, 0 renamed, 96 changed" in form for form in forms)
    assert "… 76 more; --all lists them" in text(render_counter_changes.view(report))


def test_answers_in_python_show_themselves_as_the_command_does(made: JobFiles) -> None:
    answers = {
        chain: waterfall(made.telemetry, made.traces, made.config, made.gemms),
        render_flops: flops(made.config),
        render_gemm: ask_gemm(1000, 777, 512, gpu="H100 SXM"),
        render_audit: audit_mfu(made.config, reported=0.54, ofu=0.26),
    }
    for module, report in answers.items():
        view = module.view(report)
        assert str(report) == text(view) and report._repr_markdown_() == markdown(view)
        assert "<script" not in report._repr_html_() and view.headline.strong in plain(report._repr_html_())
