"""OFU beside MFU on known products: shapes, estimates, statistics, the recording, the harness on a double, and what is shown."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.benches.gemm_ofu_double import ACTIVE, CLOCK, SMS, Session
from ullage.benches import gemm_ofu as harness
from ullage.benches import gemm_ofu_plan as plan
from ullage.benches.gemm_ofu_plan import PlannedGemm, planned, random_shapes
from ullage.benches.gemm_ofu_record import Book, GemmRecording, Observation, read
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.render.gemm_ofu import record, view
from ullage.render.svg import gemm_ofu as pictures
from ullage.reports.gemms import ofu as report
from ullage.reports.gemms.ofu import PAPER, differences, gemm_ofu, statistics
from ullage.reports.gemms.ofu_estimates import Cover, counted, cover, estimate, in_span, since_boot
from ullage.views.html import html

H100 = find("H100 SXM")
NVJET = "nvjet_sm90_hsh_256x128_64x4_2x1_v_bz_coopA_NNN"
MACHINE = {"gpu": "NVIDIA H200", "uuid_hash": "GPU-1", "driver": "595.10", "torch": "2.13", "sms": SMS}
SETTINGS = {"seconds": 1.0, "seed": 0, "largest": 8192, "left_out": {"fp4": "NVIDIA H200 has no FP4 tensor cores"}, "notes": []}


def seen(gemm, mfu, ofu, clock=1.5e9, kernels=(NVJET,), counters=True):
    """A product observed for 2 s at an MFU and an OFU of an H200's 1830 MHz."""
    chip = find("NVIDIA H200")
    cycles = (7e12, 7e12 + 2 * clock), (3e12, 3e12 + 2 * ofu * chip.tensor_clock)
    return Observation(
        gemm, kernels, "", 2 * mfu * chip.peak(gemm.precision), 0.25, 2.0, ofu * chip.tensor_clock / clock, clock, 100,
        *(cycles if counters else ((None, None), (None, None))),
    )  # fmt: skip


# --- shapes ---


@given(st.integers(0, 50), st.integers(0, 2**32), st.integers(16, 40_000))
def test_random_shapes_are_multiples_of_16_within_the_limit_and_grow_at_their_end(count, seed, largest):
    shapes = random_shapes(count, seed, largest)
    assert len(shapes) == count and all(16 <= size <= largest and size % 16 == 0 for shape in shapes for size in shape)
    assert random_shapes(count + 3, seed, largest)[:count] == shapes


def test_each_shape_runs_in_every_precision_before_the_next():
    random = [gemm for gemm in planned(["fp16", "tf32", "fp8"], 2, seed=7) if gemm.kind == "random"]
    assert [gemm.precision for gemm in random] == ["fp16", "tf32", "fp8"] * 2
    assert len({(gemm.m, gemm.n, gemm.k) for gemm in random}) == 2


def test_fp4_products_have_multiples_of_128():
    assert all(size % 128 == 0 for gemm in planned(["fp4"], 20, 0) for size in (gemm.m, gemm.n, gemm.k))


def test_sizes_that_cant_be_are_refused():
    with pytest.raises(UllageError, match="5 products up to 8"):
        random_shapes(5, 0, largest=8)


# --- estimates ---


def test_rows_of_pytorch_are_columns_of_cublas():
    # row-major 1000 × 300 is 300 × 1000 there: tiles of 256 × 128 in pairs along m: 2 of 256, 8 of 128; K 100 takes 2 steps of 64
    found = cover(PlannedGemm("random", "fp16", 1000, 300, 100), [NVJET])
    assert isinstance(found, Cover) and found.effective == (512, 1024, 128)


@pytest.mark.parametrize(
    ("kernels", "why"),
    [
        ((), "the profiler told no kernel's name"),
        (("my_gemm",), "of no known scheme"),
        ((NVJET, NVJET), "several kernels"),
        ((NVJET, "void cublasLt::splitKreduce_kernel<32, 16>"), "splits K"),
        (("nvjet_hsh_64x8_64x16_1x1_v_bz_splitK_NNT",), "splits K"),
        (("nvjet_sm100_tst_256x128_64x5_2x2_2cta_h_bz_TNT",), "in pairs"),
        (("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",),
         "leave out tile, step or cluster"),
    ],
)  # fmt: skip
def test_what_a_name_does_not_tell_is_said_and_not_guessed(kernels, why):
    assert why in cover(PlannedGemm("random", "bf16", 512, 512, 512), kernels)


def test_other_kernels_beside_the_product_do_not_matter():
    assert isinstance(cover(PlannedGemm("random", "fp16", 512, 512, 512), ["fill_kernel", NVJET]), Cover)


def test_an_estimate_is_worked_out_from_what_was_seen():
    # 2 s at 1.5 GHz, pipes active half of it: 0.5 × 1500 / 1830 = 0.4098; 600 TFLOP in 2 s over 989.4 TFLOP/s = 0.3032
    gemm = PlannedGemm("random", "fp16", 256, 256, 64)
    observed = Observation(gemm, (NVJET,), "", 600e12, 0.25, 2.0, 0.5, 1.5e9, 100, (9e12, 9e12 + 3e9), (4e12, 4e12 + 1.5e9))
    found = estimate(observed, H100, SMS)
    assert found.sampled == pytest.approx(0.5 * 1500 / 1830)
    assert found.exact == pytest.approx(1.5e9 / 1.83e9 / 2)
    assert found.mfu == pytest.approx(300e12 / (132 * 4096 * 1.83e9))
    # 256 × 256 in a cluster of two tiles of 256 along m: half of it is padding
    assert found.efficiency == 0.5 and found.ofu(exact=True, adjusted=True) == pytest.approx(found.exact / 2)


@given(
    st.booleans(), st.sampled_from([1, SMS]), st.floats(0.1, 300), st.floats(0.3e9, 2.2e9), st.floats(0.9, 1.1), st.floats(0.7, 1.3),
    st.floats(10, 1e7),
)  # fmt: skip
def test_however_a_driver_counts_cycles_it_is_found_out(boot, units, seconds, clock, noise, ramp, uptime):
    # a load of 0.25 s, then the span; the clock before it differs by up to 30 %, the sampled one by 10 %; booted at least 10 s ago
    growth, start = clock * seconds * units, uptime * clock * units
    answers = (start, start + growth) if boot else (clock * ramp * 0.25 * units, growth)
    found = counted(answers, (0.25, seconds), clock * noise, SMS)
    assert found == (since_boot if boot else in_span, units)


def test_counters_that_fit_no_clock_give_no_exact_ofu():
    assert counted((4e9, 4.8e9), (0.25, 1.0), 1.5e9, SMS) is None
    assert counted((None, None), (0.25, 1.0), 1.5e9, SMS) is None
    blind = seen(PlannedGemm("random", "fp16", 256, 256, 64), 0.3, 0.4, counters=False)
    assert estimate(blind, H100, SMS).exact is None and estimate(blind, H100, SMS).sampled == pytest.approx(0.4)


# --- statistics ---


def test_statistics_of_errors():
    # 1, −3, 6 and 0 points: mean size 2.5, mean 1; two within 2, three within 5
    found = statistics([0.01, -0.03, 0.06, 0.0])
    assert (found.count, found.within_2, found.within_5) == (4, 0.5, 0.75)
    assert found.error == pytest.approx(0.025) and found.bias == pytest.approx(0.01)
    assert statistics([]) is None


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=50))
def test_within_5_points_are_at_least_those_within_2_and_bias_is_no_larger_than_error(errors):
    found = statistics(errors)
    assert 0 <= found.within_2 <= found.within_5 <= 1 and abs(found.bias) <= found.error + 1e-12


def test_squares_are_no_part_of_the_table():
    squares = [estimate(seen(PlannedGemm("square", "fp16", 512, 512, 512), 0.5, 0.9), H100, SMS)]
    assert differences(squares, exact=True, adjusted=False) == []


def test_the_papers_table_ii_is_the_papers():
    place = Path(__file__).parents[3] / "shared" / "seeds" / "ofu_paper.txt"
    if not place.exists():
        pytest.skip("the paper's text is not beside the repository")
    row = r"^\| (H100|GB200) \| (\w+) \| OFU \| ([\d.]+) \| (\d+)% \| (\d+)% \|\n\| Adj OFU \| ([\d.]+) \| (\d+)% \| (\d+)% \|"
    found = {}
    for gpu, precision, *figures in re.findall(row, place.read_text(), re.M):
        mae, two, five, adjusted, adjusted_two, adjusted_five = map(float, figures)
        key = (gpu, "fp4" if precision == "NVFP4" else precision.lower())
        found[key] = (mae, two / 100, five / 100), (adjusted, adjusted_two / 100, adjusted_five / 100)
    assert len(found) == 7 and found == PAPER


# --- the report ---


def recording(observations, **changed):
    return replace(GemmRecording(MACHINE, SETTINGS, "2026-01-01T00:00:00Z", tuple(observations)), **changed)


def three():
    """Products of 256 × 1024 rows: MFU 0.5, tile efficiency 1, OFU 1 point, 3 points and none above it."""
    gemm = PlannedGemm("random", "fp16", 1024, 512, 640)
    return [seen(replace(gemm, k=640 + 64 * n), 0.5, 0.5 + off) for n, off in enumerate((0.01, 0.03, 0.0))]


def test_what_the_gpus_figures_rest_on_is_the_last_note():
    b200 = replace(recording(three()), machine={**MACHINE, "gpu": "NVIDIA B200"})
    assert gemm_ofu(b200).notes[-1] == find("B200").warning and find("B200").warning not in gemm_ofu(recording(three())).notes


def test_the_table_stands_as_in_the_paper_with_the_papers_rows_below():
    told = str(gemm_ofu(recording(three())))
    assert told.split("\n\nnote:")[0] == (
        "adjusted OFU is within 2 points of MFU for 67 % of 3 products on NVIDIA H200 (mean absolute error 1.33 points)\n"
        "\n"
        "GPU           precision  estimator                     GEMMs  MAE, pp  bias, pp  within 2 pp  within 5 pp\n"
        "NVIDIA H200   FP16       OFU, cycle counters               3     1.33     +1.33         67 %        100 %\n"
        "NVIDIA H200   FP16       adjusted OFU, cycle counters      3     1.33     +1.33         67 %        100 %\n"
        "NVIDIA H200   FP16       OFU, sampled clock                3     1.33     +1.33         67 %        100 %\n"
        "NVIDIA H200   FP16       adjusted OFU, sampled clock       3     1.33     +1.33         67 %        100 %\n"
        "H100 (paper)  FP16       OFU                             500     1.90         –         64 %         96 %\n"
        "H100 (paper)  FP16       adjusted OFU                    500     0.06         –        100 %        100 %"
    )


def test_what_is_missing_is_said():
    gemm = PlannedGemm("random", "fp16", 1024, 512, 640)
    odd = [
        seen(gemm, 0.5, 0.5, kernels=("my_gemm",), counters=False),
        Observation(replace(gemm, k=64), problem="the result is wrong: an element is off by 3"),
        seen(replace(gemm, k=128), 1.01, 1.0, counters=False),
    ]
    notes = "\n".join(gemm_ofu(recording(odd)).notes)
    assert "FP4 is left out: NVIDIA H200 has no FP4 tensor cores" in notes
    assert "1 products have no adjusted OFU: the kernel's name is of no known scheme (1)" in notes
    assert "1 products have no number: fp16 1024 × 512 × 64: the result is wrong: an element is off by 3" in notes
    assert "told no cycle counters" in notes and "1 products are above the stated peak" in notes


def test_nothing_measured_is_no_number():
    told = str(gemm_ofu(recording([])))
    assert told.startswith("nothing was measured on NVIDIA H200") and "%" not in told


def test_speedups_are_told_by_time_and_by_ofu():
    # FP16 at MFU 0.6 against TF32 at 0.5, peaks 2 to 1: 2.4 times as fast; by OFU 0.66 / 0.6 × 2 = 2.2
    squares = [seen(PlannedGemm("square", p, 4096, 4096, 4096), mfu, ofu) for p, mfu, ofu in (("fp16", 0.6, 0.66), ("tf32", 0.5, 0.6))]
    (found,) = gemm_ofu(recording(squares)).speedups
    assert (found.size, found.precision) == (4096, "fp16")
    assert found.measured == pytest.approx(2.4, rel=1e-3) and found.by_ofu == pytest.approx(2.2, rel=1e-3)


def test_padding_over_size_needs_only_names():
    # 1280 in clusters of 2 × 256 is 1536 along m, 1280 = 10 × 128 along n: a fifth too much
    sizes = [Observation(PlannedGemm("size", "fp16", n, n, n), (NVJET,)) for n in (1024, 1280)]
    assert gemm_ofu(recording(sizes)).overheads == {"fp16": ((1024, 0.0), (1280, pytest.approx(0.2)))}


def whole():
    squares = [seen(PlannedGemm("square", p, n, n, n), 0.5, 0.52) for p in ("fp16", "tf32", "fp8") for n in (512, 4096)]
    sizes = [Observation(PlannedGemm("size", "fp16", n, n, n), (NVJET,)) for n in (1024, 1280, 1408)]
    return gemm_ofu(recording([*three(), *squares, *sizes]))


@pytest.mark.parametrize("name", ["errors", "overheads", "speedups"])
@pytest.mark.parametrize("width", [880, 360])
def test_each_picture_is_drawn_from_data_and_not_without(name, width):
    drawn = str(getattr(pictures, name)(whole(), width=width))
    assert drawn.startswith("<svg") and "nan" not in drawn.lower().replace("announc", "")
    assert getattr(pictures, name)(gemm_ofu(recording([]))) is None


def test_every_product_is_a_dot():
    # 3 products, raw and adjusted
    assert str(pictures.errors(whole())).count("<circle") == 6


def test_json_and_the_page_hold_the_table():
    told = json.loads(json.dumps(record(whole()), allow_nan=False))
    assert [row["count"] for row in told["rows"] if row["precision"] == "fp16"] == [3, 3, 3, 3, 500, 500]
    assert {one["tile"] for one in told["gemms"] if one["kind"] == "random"} == {"256x128x64"}
    page = html(view(whole()))
    assert page.count("<h2") == 5 and "Table II" in page and "<script>" not in page.split("</main>")[0]


# --- the recording ---


def test_a_recording_reads_back_as_it_was_written(tmp_path):
    path = tmp_path / "a.jsonl"
    book = Book(path, MACHINE, SETTINGS, "2026-01-01T00:00:00Z")
    for one in three():
        book.add(replace(one, throttle=("power cap",)))
    found = read(path)
    assert found.observations == tuple(replace(one, throttle=("power cap",)) for one in three())
    assert found.machine == MACHINE and found.settings == SETTINGS


def test_a_line_that_was_cut_is_left_out_and_written_again(tmp_path):
    path = tmp_path / "a.jsonl"
    book = Book(path, MACHINE, SETTINGS, "2026-01-01T00:00:00Z")
    one, two, _ = three()
    book.add(one)
    book.add(two)
    path.write_bytes(path.read_bytes()[:-20])
    assert read(path).observations == (one,)
    again = Book(path, MACHINE, SETTINGS, "2026-01-02T00:00:00Z")
    assert again.done == {one.gemm}
    again.add(two)
    assert read(path).observations == (one, two)


@pytest.mark.parametrize(("machine", "settings"), [({"uuid_hash": "GPU-2"}, {}), ({"driver": "600"}, {}), ({}, {"seconds": 2.0})])
def test_another_machine_or_setting_does_not_go_on_with_a_recording(tmp_path, machine, settings):
    path = tmp_path / "a.jsonl"
    Book(path, MACHINE, SETTINGS, "2026-01-01T00:00:00Z")
    with pytest.raises(UllageError, match="was begun with"):
        Book(path, MACHINE | machine, SETTINGS | settings, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("content", [b"", b"[]\n", b"\xff\xfe", b'{"format": "ullage gemm-ofu 1"}\n', b'{"format": 1}\n', b"[" * 99_999])
def test_a_file_that_is_no_recording_is_refused(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(UllageError):
        read(path)


def test_a_line_in_the_middle_that_is_damaged_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    Book(path, MACHINE, SETTINGS, "2026-01-01T00:00:00Z")
    path.write_text(path.read_text() + '{"gemm": 3}\n{}\n')
    with pytest.raises(UllageError, match="damaged"):
        read(path)


# --- the harness ---


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(plan, "SQUARES", (64,))
    monkeypatch.setattr(plan, "SIZES", (128,))


def run(session, path, **asked):
    settings = {"precisions": ["fp16", "tf32"], "count": 2, "seconds": 0.5, "largest": 128, "sleep": session.sleep}
    return harness.measure(session, path, **(settings | asked))


@pytest.mark.parametrize("differences", [False, True])
def test_the_harness_finds_what_the_gpu_does(torch, small, tmp_path, differences):
    session = Session(torch, differences=differences)
    assert run(session, tmp_path / "a.jsonl") == ""
    found = read(tmp_path / "a.jsonl")
    # a square, two random products and a size in two precisions
    assert [one.gemm.kind for one in found.observations] == ["square"] * 2 + ["random"] * 4 + ["size"] * 2
    assert not any(one.problem for one in found.observations) and session.given_back == 8 and session.cuda.on == 3
    for one in found.observations[:6]:
        # 25 calls in a burst of 25 ms, without a gap
        assert one.flops / one.seconds == pytest.approx(1000 * one.gemm.flops, rel=0.01)
        assert one.seconds >= 0.5 and one.tensor_active == ACTIVE and one.sm_clock == CLOCK * 1e6
        told = estimate(one, H100, SMS)
        assert told.exact == pytest.approx(ACTIVE * CLOCK / 1830, rel=1e-3) and told.sampled == pytest.approx(told.exact, rel=1e-3)
        assert one.kernels == session.torch.kernels and told.cover is not None
    assert found.observations[-1].flops is None and session.cuda.captures == 6
    assert all(sample.freed for sample in session.nvml.samples)


def test_what_is_recorded_is_not_measured_again(torch, small, tmp_path):
    path = tmp_path / "a.jsonl"
    run(Session(torch), path, count=1)
    before = read(path).observations
    session = Session(torch)
    run(session, path, count=2)
    after = read(path).observations
    assert after[: len(before)] == before and len({one.gemm for one in after}) == len(after) == 8 and session.given_back == 2


def test_after_its_minutes_it_begins_nothing(torch, small, tmp_path):
    # a product takes over 0.75 simulated seconds, and 0.05 minutes are 3 s
    early = run(Session(torch), tmp_path / "a.jsonl", count=50, minutes=0.05)
    measured = len(read(tmp_path / "a.jsonl").observations)
    assert re.match(r"the time was up: \d+ products are not measured", early) and 0 < measured < 104


def test_a_wrong_product_gives_no_number(torch, small, tmp_path):
    session = Session(torch)
    session.torch.broken = lambda a, b: a.fill_(float("nan"))
    run(session, tmp_path / "a.jsonl", count=0, precisions=["tf32"])
    (square, size) = read(tmp_path / "a.jsonl").observations
    assert square.problem.startswith("the result is wrong") and square.flops is None and size.kernels == ()


def test_five_failures_in_a_row_end_the_run(torch, small, tmp_path):
    session = Session(torch)

    def broken(a, b):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    session.torch.broken = broken
    early = run(session, tmp_path / "a.jsonl", count=9)
    assert early.startswith("5 products in a row failed") and "illegal memory access" in early
    assert len(read(tmp_path / "a.jsonl").observations) == 5


def test_without_a_profiler_there_are_no_names_but_numbers(torch, small, tmp_path):
    session = Session(torch, kernels=None)
    assert run(session, tmp_path / "a.jsonl", count=0) == ""
    square = read(tmp_path / "a.jsonl").observations[0]
    assert square.kernels == () and square.flops > 0


def test_kernels_are_named_in_the_order_in_which_they_ran(torch):
    session = Session(torch, kernels=("gemm", "splitKreduce"))
    assert harness.kernel_names(session.torch, lambda: None) == ("gemm", "splitKreduce")


def test_precisions_that_are_not_there_are_left_out_with_the_reason(torch):
    usable, lacking = harness.available("NVIDIA H200", torch, ["fp16", "nvfp4", "fp64", "half"])
    assert usable == ["fp16"]
    assert lacking == {"fp4": "NVIDIA H200 has no FP4 tensor cores", "fp64": "the harness knows fp16, bf16, tf32, fp8, fp4"}


def test_a_gpu_without_tensor_activity_and_a_machine_without_pytorch_are_refused(torch, tmp_path):
    with pytest.raises(UllageError, match="no tensor activity"):
        run(Session(torch, gpm=False), tmp_path / "a.jsonl")
    with pytest.raises(UllageError, match="needs PyTorch"):
        run(Session(None), tmp_path / "a.jsonl")
    assert not (tmp_path / "a.jsonl").exists()


# --- the command ---


def written(tmp_path):
    path = tmp_path / "a.jsonl"
    book = Book(path, MACHINE, SETTINGS, "2026-01-01T00:00:00Z")
    for one in whole().recording.observations:
        book.add(one)
    return str(path)


def test_a_recording_is_reported_without_a_gpu(tmp_path):
    found = CliRunner().invoke(cli, ["bench", "gemm-ofu", "--from", written(tmp_path)])
    assert found.exit_code == 0 and found.output.startswith("adjusted OFU is within 2 points of MFU")


FORMS = {"a.svg": "<svg", "a.html": "<!doctype", "a.json": "{", "a.txt": "adjusted", "a.md": "**adjusted", "a.csv": "GPU,"}


@pytest.mark.parametrize(("name", "start"), FORMS.items())
def test_a_report_takes_the_form_of_its_name(tmp_path, name, start):
    found = CliRunner().invoke(cli, ["bench", "gemm-ofu", "--from", written(tmp_path), "--out", str(tmp_path / name)])
    assert found.exit_code == 0 and (tmp_path / name).read_text().startswith(start)


def test_a_picture_of_nothing_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    Book(path, MACHINE, SETTINGS, "2026-01-01T00:00:00Z")
    found = CliRunner().invoke(cli, ["bench", "gemm-ofu", "--from", str(path), "--out", str(tmp_path / "a.svg")])
    assert isinstance(found.exception, UllageError) and "nothing to draw" in str(found.exception)


def test_the_report_module_knows_every_precision_of_the_plan():
    assert report.BASE in plan.PRECISIONS and {precision for _, precision in PAPER} <= set(plan.PRECISIONS)
