"""The waterfall asked by people who slip, and by sources that lie: what can't be is refused, what contradicts itself is said first."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import ullage
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.metrics.evidence import Measured
from ullage.render.svg.waterfall import waterfall as picture
from ullage.render.waterfall import headline, record, view
from ullage.reports.waterfall.inputs import kind, sorted_by_kind
from ullage.reports.waterfall.known import GivenByHand, SourceReports
from ullage.reports.waterfall.waterfall import waterfall
from ullage.simulate.job import JobPlan, job
from ullage.simulate.job_files import JobFiles, write
from ullage.views.html import html
from ullage.views.numbers import factor_of_chain


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> JobFiles:
    return write(job(JobPlan(ranks=2, steps=2, seed=3)), tmp_path_factory.mktemp("job"))


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, ["waterfall", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def problem(*words: object) -> UllageError:
    with pytest.raises(UllageError) as raised:
        CliRunner().invoke(cli, ["waterfall", *map(str, words)], catch_exceptions=False)
    return raised.value


def changed(made: JobFiles, to: Path, **columns: Any) -> Path:
    """Return the job's telemetry with some columns replaced: by a value, or by a function of the old ones."""
    table = parquet.read_table(made.telemetry)
    for name, new in columns.items():
        place, field = table.schema.get_field_index(name), table.schema.field(name)
        old = table[name].to_pylist()
        values = new(old) if callable(new) else [new] * len(old)
        kind_of = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        table = table.set_column(place, pa.field(name, kind_of), pa.array(values, kind_of))
    parquet.write_table(table, to / "changed.parquet")
    return to / "changed.parquet"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mfu", "1.5"), "--mfu 1.5 may be 1.5 % or a ratio of 1.5\n  write 1.5%"),
        (("--mfu", "1"), "--mfu 1 may be 1 %"),
        (("--ofu", "34", "--tile-efficiency", "1.02"), "--tile-efficiency 1.02 may be 1.02 %"),
        (("--mfu", "150"), "an MFU of 1.5 (150 %) can't be"),
        (("--ofu", "-3"), "an OFU of -3 (-300 %) can't be"),
        (("--ofu", "nan"), "ofu must be a finite number, not nan"),
        (("--ofu", "inf"), "ofu must be a finite number, not inf"),
        (("--ofu", "34,5"), "--ofu '34,5' is not a number"),
        (("--ofu", "34", "--model-efficiency", "0"), "a model efficiency of 0"),
        (("--ofu", "34", "--gpu", "H9000"), "no GPU is called 'H9000'"),
        (("--ofu", "34", "--ceiling", "750"), "a ceiling of 750 can't be\n  give FLOP/s of one GPU"),
        (("--ofu", "34", "--ceiling", "2e15", "--gpu", "H100 SXM"), "a measured ceiling of 2,000.0 TFLOP/s can't be: the peak is 989.4"),
        (("--ofu", "34", "--hours", "1e10"), "a time in hours of 1e+10 can't be"),
        (("--ofu", "34", "--price", "1e300"), "a price of 1e+300 can't be"),
    ],
)
def test_a_slip_of_the_pen_is_refused_with_what_to_write(words, said):
    assert str(problem(*words)).startswith(said)


@pytest.mark.parametrize(("written", "ofu"), [("34%", 0.34), ("34 %", 0.34), ("34", 0.34), ("0.34", 0.34), ("1.5%", 0.015), ("105%", 1.05)])
def test_percent_and_ratios_are_told_apart(written, ofu):
    assert json.loads(run("--ofu", written, "--json"))["value"] == pytest.approx(ofu)


def test_python_refuses_the_same(tmp_path):
    with pytest.raises(UllageError, match="price must be 0 or more, not -1"):
        ullage.waterfall(ofu=0.3, price=-1)
    with pytest.raises(UllageError, match=r"an OFU of 34 \(3400 %\) can't be"):
        ullage.waterfall(ofu=34)


def test_python_takes_one_place_or_several_and_paths(made):
    one = ullage.waterfall(telemetry=str(made.telemetry), trace=made.traces)
    two = ullage.waterfall(made.telemetry, trace=[made.traces])
    assert one == two


def test_an_mfu_that_the_counters_do_not_allow_is_the_first_line():
    # OFU paper, section V-C: 54.27 % reported, 25.58 % measured; × 0.98 are 25.1
    out = run("--ofu", "25.58", "--mfu", "54.27", "--tile-efficiency", "98%", "--model-efficiency", "100%")
    assert out.startswith("MFU 54.3 % of peak, where OFU × tile × model allow 25.1 %: one of these numbers is wrong\n")


def test_an_mfu_above_ofu_is_the_first_line_although_nobody_knows_tile_and_model():
    out = run("--ofu", "26%", "--mfu", "34%")
    assert out.startswith("MFU 34.0 % of peak, where all else allows 26.0 %: one of these numbers is wrong\n")
    # within what OFU may be off, 3 %, nothing is contradicted
    assert run("--ofu", "33.5%", "--mfu", "34%").startswith("MFU 34.0 % of peak: 66.5 points are lost")


def test_an_idle_job_with_a_reported_mfu_is_a_contradiction(made, tmp_path):
    out = run(changed(made, tmp_path, tensor_active=0.0), made.config, made.gemms)
    assert "of peak, where OFU × tile × model allow 0.0 %: one of these numbers is wrong" in out.splitlines()[0]
    assert "= expected MFU" in out


def test_a_chain_that_closes_ends_at_its_own_mfu_and_says_so(made):
    data = json.loads(run(made.telemetry, made.traces, made.config, made.gemms, "--json"))
    assert (data["reaches"], data["ends"], data["allowed"]) == ("MFU", "expected MFU", None)
    # OFU as a measure of executed FLOPs may be off by 3 %, beside what sampling its clock costs
    end, ofu = data["end"], data["ofu"]
    assert end["low"] / end["value"] == pytest.approx(0.97 * ofu["low"] / ofu["value"])
    assert {name: end[name] for name in data["closure"]["expected"]} == data["closure"]["expected"] | {"source": end["source"]}
    assert end["points"] == 100 * end["value"] and end["gpu_hours"] == pytest.approx(data["gpu_hours"] * end["value"])


def test_an_ofu_by_hand_is_off_by_its_error_once():
    # 34 × 0.75 = 25.5; 3 % of it are 0.765
    data = json.loads(run("--ofu", "34%", "--mfu", "26%", "--tile-efficiency", "100%", "--model-efficiency", "75%", "--json"))
    expected = data["closure"]["expected"]
    assert (expected["low"], expected["high"]) == pytest.approx((0.255 * 0.97, 0.255 * 1.03))


def test_what_remains_has_the_error_of_ofu(made):
    data = json.loads(run(made.telemetry, made.config, "--json"))  # nobody knows the tiles
    tile = next(step for step in data["steps"] if step["name"] == "tile")["factor"]
    assert tile["source"] == "what remains"
    assert tile["low"] <= tile["value"] / 1.03 and tile["high"] >= tile["value"] / 0.97


def test_an_unlikely_tile_efficiency_that_remains_is_pointed_out(made):
    assert "note: tile comes to 0.4" in run(made.telemetry, made.config, "--gpus", "4")  # the job has two


def test_sources_that_are_not_of_one_job_are_said(made, tmp_path):
    out = run(made.telemetry, made.config, "--gpus", "4")
    assert "note: telemetry is of 2 GPUs, and the job is said to have 4" in out
    out = run(made.telemetry, made.traces, made.config, "--gpu", "A100")
    assert "note: the sources call the GPUs NVIDIA H100 80GB HBM3, and --gpu A100: their peaks differ" in out
    other = write(job(JobPlan(ranks=2, steps=1, seed=9)), tmp_path)
    assert "note: the trace's GPUs are none of the telemetry's" in run(made.telemetry, other.traces)


def test_a_trace_of_another_time_is_said(made, tmp_path):
    import datetime

    later = changed(made, tmp_path, time=lambda old: [time + datetime.timedelta(days=30) for time in old])
    out = run(later, made.traces)
    assert "telemetry begins at 2026-01-30 23:30 UTC and ends at 2026-01-31 00:30 UTC, and the trace is of 2026-01-01 00:00 UTC" in out
    assert " of them: " in run(made.telemetry, made.traces)


def test_several_models_in_a_job_are_said(made, tmp_path):
    half = changed(made, tmp_path, model=lambda old: [*old[:120], *["NVIDIA A100-SXM4-80GB"] * 120])
    out = run(half, made.config)
    assert "note: the job's GPUs are of 2 models (NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3)" in out
    assert out.startswith("OFU × model")  # there is no one peak for an MFU


@pytest.mark.parametrize(("field", "said"), [("tensor_active", "nobody measured tensor_active"), ("sm_clock", "nobody measured sm_clock")])
def test_telemetry_without_ofu_says_which_field_is_missing(made, tmp_path, field, said):
    assert problem(changed(made, tmp_path, **{field: None})).hint.startswith(said)


def test_telemetry_that_cannot_be_trusted_says_why(made, tmp_path):
    stuck = changed(made, tmp_path, tensor_active=0.0, sm_active=0.0, gr_active=0.0)
    assert problem(stuck).hint.startswith("its series can't be trusted: stuck at zero")


def test_telemetry_without_a_clock_does_not_speak_of_sampling_it(made, tmp_path):
    out = run(changed(made, tmp_path, sm_clock=None), made.config)
    assert "no OFU" in out and "sampling the clock" not in out


def test_foreign_names_do_no_harm(made, tmp_path):
    evil = '<script>alert(1)</script>\x1b[31m&"'
    mixed = changed(made, tmp_path, job=lambda old: [evil] * 120 + ["b\nc"] * 120)
    assert "\x1b" not in str(problem(mixed)) and "b\\nc" in str(problem(mixed))
    report = ullage.waterfall(mixed, job=evil)
    for written in (html(view(report)), str(picture(report))):
        assert "<script>alert" not in written


def test_hours_by_hand_go_before_those_of_telemetry_and_are_said(made):
    out = run(made.telemetry, "--hours", "72", "--json")
    assert json.loads(out)["gpu_hours"] == 144  # two GPUs
    assert "telemetry saw 2 of them" in run(made.telemetry, "--hours", "72")


def test_a_price_or_steps_that_come_to_nothing_are_said():
    out = run("--ofu", "34", "--steps", "5", "--price", "2")
    assert "note: how long a step takes is not known" in out
    assert "note: what the price 2 comes to is not known" in out
    assert "the GPU-hours are those of one (--gpus)" in run("--ofu", "34", "--hours", "5")


@pytest.mark.parametrize(("more", "heading"), [((), "money at the price given"), (("--currency", "EUR"), "money at the price given, EUR")])
def test_amounts_say_their_price_with_and_without_a_currency(more, heading, tmp_path):
    words = ("--ofu", "34", "--hours", "100", "--price", "2", *more)
    assert f"  {heading}  " in run(*words)
    run(*words, "--out", tmp_path / "picture.svg")
    assert f"below them {heading};" in (tmp_path / "picture.svg").read_text()


def test_an_answer_above_the_measured_ceiling_is_said():
    assert "note: the answer lies above the measured ceiling" in run("--mfu", "26", "--ceiling", "1e14", "--gpu", "H100 SXM")


def test_a_ceiling_is_held_against_the_peak_of_the_precision(made):
    # H100 SXM: 1,978.9 TFLOP/s dense FP8
    data = json.loads(run("--mfu", "26", "--ceiling", "1500e12", "--gpu", "H100 SXM", "--precision", "fp8", "--json"))
    assert data["ceiling_share"] == pytest.approx(1500 / 1978.9, rel=1e-3)


def test_products_without_tiles_are_said(tmp_path):
    (tmp_path / "g.json").write_text('[{"m": 64, "n": 64, "k": 64}]')
    assert "note: the tiles of the listed products are not known" in run("--ofu", "34", "--gemms", tmp_path / "g.json")


def test_a_folder_with_a_job_in_it_is_all_of_its_sources(made):
    (made.config.parent / "tokenizer.json").write_text('{"model": {"vocab": {}}}')
    found = sorted_by_kind([str(made.config.parent)])
    assert {what: [Path(place).name for place in places] for what, places in found.items()} == {
        "config": [made.config.parent.name],
        "gemms": ["gemms.json"],
        "telemetry": ["telemetry.parquet"],
        "trace": ["traces"],
    }


def test_a_folder_of_nothing_is_told_after_a_look_at_its_first_files(tmp_path, monkeypatch):
    for number in range(80):
        (tmp_path / f"{number:02}.bin").write_bytes(b"\x00")
    looked: list[str] = []
    monkeypatch.setattr("ullage.reports.waterfall.inputs.head", lambda path: looked.append(path.name) or b"\x00")
    with pytest.raises(UllageError, match="no reader recognises what the folder"):
        kind(str(tmp_path))
    assert len(looked) == 50


@pytest.mark.parametrize("content", [b"", b"hello", b"[1, 2]", b'{"a": 1}', b"\x80\x81", b'{"architectures": ', b"PAR1cut"])
def test_files_of_nothing_are_one_clear_error(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert problem(tmp_path / "file").hint


def test_a_cut_trace_is_called_damaged(made, tmp_path):
    whole = next(made.traces.iterdir()).read_bytes()
    (tmp_path / "cut.json").write_bytes(whole[:3000])
    assert problem(tmp_path / "cut.json").hint.startswith("what is left of the damaged trace has no device")


def test_one_rank_has_no_launches_without_a_kernel(tmp_path):
    made = write(job(JobPlan(ranks=1, steps=2, seed=23)), tmp_path)
    report = ullage.waterfall(made.traces)
    assert all(step.factor.low == step.factor.value for step in report.chain.steps)


def test_a_page_draws_its_hatching_in_both_widths():
    drawn = html(view(waterfall(SourceReports(), GivenByHand(ofu=0.3))))
    for key in ("merged-880", "merged-360"):  # a picture that is not shown lends its patterns to nobody
        assert f'id="{key}"' in drawn and f"url(#{key})" in drawn


def test_huge_and_tiny_amounts_stay_short_in_the_picture():
    huge = waterfall(SourceReports(gpus=100_000), GivenByHand(ofu=0.3, hours=1e6, price=1e6))
    assert "100 G GPU-hours" in str(picture(huge))
    assert "&lt; 0.001 GPU-hours" in str(picture(waterfall(SourceReports(gpus=1), GivenByHand(ofu=0.3, hours=1e-6))))


ratios = st.floats(0.02, 1.0)


@given(
    ofu=ratios, tile=ratios, model=ratios, hours=st.floats(0.001, 1e6), price=st.just(0.0) | st.floats(1e-6, 1e6), mfu=st.none() | ratios
)
@settings(max_examples=40)
def test_printed_factors_multiply_to_the_printed_end(ofu, tile, model, hours, price, mfu):
    report = waterfall(SourceReports(gpus=8), GivenByHand(ofu=ofu, tile=tile, model=model, mfu=mfu, hours=hours, price=price))
    shown = [factor_of_chain(step.factor.value) for step in report.chain.steps]
    assert all(words in str(report) for words in shown)
    # three digits of each of at most four factors, the least of them 0.1 or with three digits that count
    assert math.prod(map(float, shown)) == pytest.approx(report.chain.end.value, rel=4 * 0.005)
    data = record(report)
    assert sum(step["gpu_hours"] for step in data["steps"]) == pytest.approx(8 * hours * (1 - data["end"]["value"]), abs=1e-6 * hours)
    assert sum(step["money"] for step in data["steps"]) == pytest.approx(
        8 * hours * price * (1 - data["end"]["value"]), abs=1e-6 * hours * price
    )
    assert str(headline(report)).startswith("MFU " if mfu is not None else "expected MFU ")


@given(hours=st.floats(0.001, 1e4), times=st.floats(1, 10), price=st.floats(0.01, 100))
def test_hours_and_price_scale_costs_and_nothing_else(hours, times, price):
    one, more = (waterfall(SourceReports(gpus=1), GivenByHand(ofu=0.3, tile=0.9, hours=h, price=price)) for h in (hours, hours * times))
    assert [cost.points for cost in one.costs] == [cost.points for cost in more.costs]
    for a, b in zip(one.costs, more.costs, strict=True):
        assert (b.gpu_hours, b.money) == pytest.approx((a.gpu_hours * times, a.money * times))


def test_the_order_of_the_sources_does_not_matter(made):
    places = [str(place) for place in (made.telemetry, made.traces, made.config, made.gemms)]
    assert str(ullage.waterfall(*places)) == str(ullage.waterfall(*reversed(places)))


def test_the_telemetry_steps_are_the_fleet_reports_factors(tmp_path):
    made = write(job(JobPlan(ranks=3, steps=1, seed=6)), tmp_path)
    tree = ullage.fleet(str(made.telemetry), by="job").groups[0].tree
    steps = ullage.waterfall(made.telemetry).chain.steps
    # both are quotients of losses, added up in an order that threads decide: equal to rounding
    assert [step.factor.value for step in steps] == pytest.approx([factor.value for factor in tree.factors], rel=1e-12)


def test_the_chain_closes_where_the_audit_finds_no_mistake(made):
    fields = json.loads(made.config.read_text())
    step = fields.pop("step")
    known = {name: step[name] for name in ("batch", "seq", "recompute")}
    for reported, agree in ((0.30, True), (0.50, False)):
        # OFU 37 %, and 0.812 of what is executed is the model's: 30.0 %
        finding = ullage.audit_mfu(fields, reported=reported, ofu=0.37, tile_efficiency=1.0, gpu="H100 SXM", **known).finding
        chain = ullage.waterfall(config=fields, mfu=reported, ofu=0.37, tile_efficiency=1.0, gpu="H100 SXM", **known).chain
        assert chain.closure is not None
        assert chain.closure.closes is finding.agrees is agree
        assert (chain.closure.expected.low, chain.closure.expected.high) == pytest.approx(finding.expected)


def test_a_whisker_and_its_row_say_the_same(made):
    report = ullage.waterfall(made.telemetry, made.traces, made.config, made.gemms)
    for before, step in zip(report.chain.steps, report.chain.steps[1:], strict=False):
        assert step.before.value == before.after.value
        assert step.after.value == pytest.approx(step.before.value * step.factor.value)
    assert isinstance(report.chain.end, Measured) and report.chain.end == report.chain.steps[-1].after
