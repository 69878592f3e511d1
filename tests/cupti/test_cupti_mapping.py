"""Old metrics and events by their new names: beside the guide's tables, an old library, the dictionary, and numbers worked out by hand."""

import importlib.metadata
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ullage.cli._question_command import question_command
from ullage.cupti.metric_names import dictionary, formulas, mapping
from ullage.errors import UllageError

GUIDE = Path(__file__).parents[3] / "shared/seeds/cupti_12_0_guide.txt"
FURNITURE = re.compile(r"www\.nvidia\.com|CUPTI|DA-05679-.*|Usage|CUPTI (Metric|Event)|Perfworks Metric or Formula|")
FIRST = {"metric": "achieved_occupancy", "event": "active_cycles"}
# Enumerates what libcupti 12.9 still knows of the old interfaces, which needs no driver; in a process of its own.
ENUMERATE = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
def text(function, number, attribute):
    room, size = ctypes.create_string_buffer(512), ctypes.c_size_t(512)
    assert function(number, attribute, ctypes.byref(size), room) == 0
    return room.raw[: size.value]
def listed(count, fill, *first):
    number = ctypes.c_uint32()
    assert count(*first, ctypes.byref(number)) == 0
    numbers = (ctypes.c_uint32 * number.value)()
    size = ctypes.c_size_t(ctypes.sizeof(numbers))
    assert fill(*first, ctypes.byref(size), numbers) == 0
    return list(numbers)
word = lambda raw: raw.split(b"\\0")[0].decode()
metric = library.cuptiMetricGetAttribute
metrics = {word(text(metric, number, 0)): int.from_bytes(text(metric, number, 4), "little")
           for number in listed(library.cuptiGetNumMetrics, library.cuptiEnumMetrics)}
domains = listed(library.cuptiGetNumEventDomains, library.cuptiEnumEventDomains)
events = {word(text(library.cuptiEventGetAttribute, number, 0)) for domain in domains
          for number in listed(library.cuptiEventDomainGetNumEvents, library.cuptiEventDomainEnumEvents, domain)}
print(json.dumps([metrics, sorted(events), len(domains)]))
"""
# CUPTI_METRIC_VALUE_KIND_* of cupti_metrics.h: double, uint64, percent, throughput, utilization level
VALUE_KINDS = {0: {"ratio"}, 1: {"count", "bytes"}, 2: {"percent"}, 3: {"bytes/s"}, 5: {"level"}}


def of(api):
    return {old.name: old for old in mapping.every() if old.api == api}


def _guide(begin, end):
    """Return the guide's text from a line to a line, without page furniture and white space."""
    if not GUIDE.is_file():
        pytest.skip("the guide is not here")
    lines = GUIDE.read_text("utf-8").split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith(begin) and i > 2000)
    last = next(i for i, line in enumerate(lines) if line.startswith(end) and i > first)
    return [line.strip() for line in lines[first:last] if not FURNITURE.fullmatch(line.strip())]


@pytest.mark.parametrize(
    ("api", "begin", "end", "rows"),
    [("metric", "2.8.3. Metrics", "2.8.4. Events", 180), ("event", "2.8.4. Events", "2.9. Migration", 82)],
)
def test_the_guides_table_is_here_row_by_row_and_nothing_is_left_of_it(api, begin, end, rows):
    text = "".join("".join(_guide(begin, end)).split())
    text = text[re.search(rf"{FIRST[api]}(?=sm__)", text).start() :]
    found, known = [], sorted(of(api).values(), key=lambda old: -len(old.name))
    while text:
        starting = [old for old in known if text.startswith(old.name)]
        forms = [(old, form) for old in starting for form in _printed(old) if text.startswith(old.name + form)]
        assert forms, f"no row begins here: {text[:100]}"
        old, form = max(forms, key=lambda pair: len(pair[0].name + pair[1]))
        found.append(old.name)
        text = text[len(old.name + form) :]
    assert len(found) == len(set(found)) == rows
    assert {name for name, old in of(api).items() if old.formula} <= set(found)


def _printed(old):
    """Return how a formula may stand in the text: three run out of the page in the middle of "sustained_elapsed"."""
    whole = old.formula.replace(" ", "")
    return [whole, whole.removesuffix("ained_elapsed"), whole.removesuffix("tained_elapsed")]


@pytest.mark.parametrize(
    ("capability", "begin", "end", "count"),
    [
        ("5.x", "2.6.1.1. Metrics", "2.6.1.2. Metrics", 161),
        ("6.x", "2.6.1.2. Metrics", "2.6.1.3. Metrics", 178),
        ("7.0", "2.6.1.3. Metrics", "2.7. CUPTI", 175),
    ],
)
def test_the_guides_lists_of_metrics_by_capability_are_here(capability, begin, end, count):
    listed = {old.name for old in of("metric").values() if capability in old.capability.split()}
    lines = _guide(begin, end)
    alone = {line for line in lines if re.fullmatch(r"[a-z]\w*_\w*|ipc", line)}  # some stand on a line with their description
    with_text = {name for name in of("metric") if any(re.match(rf"{name} ?[A-Z]", line) for line in lines)}
    assert alone | with_text == listed
    assert len(listed) == count


def test_what_the_last_library_with_the_old_interfaces_enumerates_is_here():
    package = "nvidia-cuda-cupti-cu12"
    try:
        (library,) = [str(file.locate()) for file in importlib.metadata.files(package) or [] if file.name == "libcupti.so.12"]
    except (importlib.metadata.PackageNotFoundError, ValueError):
        pytest.skip(f"{package} is not installed")
    if not importlib.metadata.version(package).startswith("12.9"):
        pytest.skip(f"{package} is not 12.9")
    done = subprocess.run([sys.executable, "-c", ENUMERATE, library], capture_output=True, check=True)
    metrics, events, domains = json.loads(done.stdout)
    assert (len(metrics), len(events), domains) == (208, 127, 36)
    assert set(events) == set(of("event"))
    # four rows of the guide's table name metrics that the library doesn't
    more = {"l1_sm_lg_utilization", "sm_tex_utilization", "tex_sm_tex_utilization", "tex_sm_utilization"}
    assert set(of("metric")) == set(metrics) | more
    assert all(of("metric")[name].kind in VALUE_KINDS[kind] for name, kind in metrics.items())


def test_every_new_name_of_the_guide_is_a_metric_of_the_chip_that_its_tables_are_for():
    parts = {part for old in mapping.every() if old.formula for part in formulas.parts(formulas.parse(old.formula))}
    unknown = {part for part in parts if not dictionary.has(part, "GV100")}
    assert unknown == {f"l1tex__t_sectors_pipe_lsu_mem_global_op_{{op}}{hit}.sum" for hit in ("", "_lookup_hit")}
    assert len(parts) == 180


def test_every_formula_of_ours_can_be_collected_and_has_its_reason():
    ours = [old for old in mapping.every() if old.instead]
    assert len(ours) == 44
    for old in ours:
        assert old.note and old.instead != old.formula
        chip = "GA100" if old.name == "tensor_int_fu_utilization" else "GV100"  # Volta's tensor cores have no integers
        assert all(dictionary.has(part, chip) for part in old.parts), old.name


@cache
def metrics_of(chip):
    return {metric.name: metric for metric in dictionary.metrics(chip)}


def metric_of(name, chip):
    return metrics_of(chip)[dictionary.base(name)]


def test_sub_metrics_suit_the_kind_of_their_metric():
    for old in mapping.every():
        for part in old.parts:
            metric = metric_of(part, "GA100" if "imma" in part else "GV100")
            ending = part[len(metric.name) :]
            expected = {"ratio": r"\.(ratio|pct)", "throughput": r"\.avg\.pct_of_peak_sustained_elapsed", "counter": r"\.(sum|avg)(\.\w+)?"}
            assert re.fullmatch(expected[metric.kind], ending), part


def test_the_unit_of_bytes_is_kept():
    # what gives bytes (a second) is bytes, sectors of 32 B, or wavefronts of 128 B
    for old in mapping.every():
        if old.kind in ("bytes", "bytes/s") and old.used:
            units = {metric_of(part, "GV100").unit for part in old.parts}
            assert (units == {"l2_sectors"}) == old.used.endswith("* 32"), old.name
            assert (units == {"l1tex_wavefronts"}) == old.used.endswith("* 128"), old.name
            assert all(part.endswith(".per_second") == (old.kind == "bytes/s") for part in old.parts)


def test_what_a_metric_counts_is_not_counted_a_second_time_by_another():
    # NVIDIA's own words for the three of the guide's formula: ATOMS.*, ATOMS.ALU (non-CAS), ATOMS.CAS
    assert mapping.find("inst_executed_shared_atomics")[0].parts == ("smsp__inst_executed_op_shared_atom.sum",)


def test_what_is_of_an_sm_is_not_taken_from_its_sub_partitions_or_from_the_whole_gpu():
    of_an_sm = ("ipc", "issued_ipc", "sm_efficiency", "achieved_occupancy")
    assert all(part.startswith("sm__") and ".avg." in part for name in of_an_sm for part in mapping.find(name)[0].parts)
    assert not [old.name for old in mapping.every() if ".sum.per_cycle" in old.used]


def test_what_has_no_formula_says_why():
    for old in mapping.every():
        assert old.used or old.note in ("the guide's table has no formula for it", "not in the guide's table, which is of capability 7.0")
        assert old.meaning


def test_values_come_from_their_parts():
    s = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum"
    # 5 additions, 7 multiplications, 11 fused ones of two operations each
    assert mapping.evaluate("flop_count_sp", {s.format("add"): 5, s.format("mul"): 7, s.format("fma"): 11}) == 34
    hit = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
    sectors = {hit.format("ld_lookup_hit"): 30, hit.format("st_lookup_hit"): 10, hit.format("ld"): 60, hit.format("st"): 20}
    assert mapping.evaluate("global_hit_rate", sectors) == 50  # 40 of 80
    assert mapping.evaluate("l2_read_throughput", {"lts__t_sectors_op_read.sum.per_second": 1e9}) == 32e9  # 32 B a sector
    assert mapping.evaluate("achieved_occupancy", {"sm__warps_active.avg.pct_of_peak_sustained_active": 62.5}) == 0.625
    assert mapping.evaluate("eligible_warps_per_cycle", {"smsp__warps_eligible.avg.per_cycle_active": 0.75}) == 3  # four sub-partitions
    tex = "lts__t_sectors_srcunit_tex{}.sum"
    assert mapping.evaluate("l2_tex_hit_rate", {tex.format("_lookup_hit"): 30, tex.format(""): 40}) == 75


def test_without_a_part_or_a_divisor_there_is_no_value():
    old = mapping.find("inst_replay_overhead")[0]
    issued, executed = "smsp__inst_issued.sum", "smsp__inst_executed.sum"
    assert mapping.evaluate(old, {issued: 12, executed: 10}) == 0.2
    assert mapping.evaluate(old, {issued: 12}) is None and mapping.missing(old, {issued: 12}) == (executed,)
    assert mapping.evaluate(old, {issued: 0, executed: 0}) is None and mapping.missing(old, {issued: 0, executed: 0}) == ()
    assert mapping.evaluate("tex_utilization", {}) is None
    assert mapping.evaluate(old, {issued: float("nan"), executed: 10}) is None


def test_reverse_finds_what_a_new_metric_stands_for_by_any_spelling():
    assert {old.name for old in mapping.standing_on("sm__warps_active.sum")} == {"active_warps", "active_warps_pm"}
    assert "achieved_occupancy" in {old.name for old in mapping.standing_on("sm__warps_active")}
    assert (
        mapping.standing_on("dram__bytes_op_write.sum") == mapping.standing_on("dram__bytes_write.sum") == mapping.find("dram_write_bytes")
    )
    with pytest.raises(UllageError, match="nothing old stands on") as caught:
        mapping.standing_on("dram__bytes_writ.sum")
    assert "'dram__bytes_write.sum'" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a__b +",
        "a__b c__d",
        "(a__b",
        "a__b)",
        "open('x')",
        "a__b ** 2",
        "-a__b",
        "1e5",
        "a",
        "__import__",
        "(" * 99 + "a__b" + ")" * 99,
        "1" * 5000,
    ],
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(UllageError, match="is no formula"):
        formulas.parse(text)


_TREES = st.recursive(
    st.sampled_from(["a__x.sum", "b__y.avg.per_second", "c__z_{op}.sum"]) | st.integers(0, 99).map(float),
    lambda part: st.builds(formulas.FormulaOperation, st.sampled_from("+-*/"), part, part),
    max_leaves=12,
)


def _written(tree):
    if isinstance(tree, formulas.FormulaOperation):
        return f"({_written(tree.left)} {tree.sign} {_written(tree.right)})"
    return f"{tree:g}" if isinstance(tree, float) else tree


@given(_TREES, st.lists(st.integers(-5, 5), min_size=3, max_size=3))
def test_a_formula_gives_what_python_gives_for_the_same_text(tree, values):
    text = _written(tree)
    assert formulas.parse(text) == tree
    names = dict(zip(["a__x.sum", "b__y.avg.per_second", "c__z_{op}.sum"], map(float, values), strict=True))
    for name, value in names.items():
        text = text.replace(name, f"({value})")
    try:
        expected = eval(text, {"__builtins__": {}})
    except ZeroDivisionError:
        expected = None
    assert formulas.value(tree, names) == expected


def run(*arguments):
    done = CliRunner().invoke(question_command("cupti map"), list(arguments))
    if isinstance(done.exception, UllageError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_map_answers_in_its_first_line():
    assert run("gld_efficiency", "--chip", "gh100") == (
        "gld_efficiency = smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct\n\n"
        "  was a metric of capability 5.x, 6.x, 7.0 (percent): bytes that global loads asked for, of the bytes that were moved for them\n"
        "  collect smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct\n"
        "  GH100 has it\n"
    )


def test_map_says_what_a_chip_calls_otherwise_or_lacks():
    assert "\n  GB202 has dram__bytes_op_read.sum for dram__bytes_read.sum\n" in run("dram_read_bytes", "--chip", "GB202")
    assert "\n  GB202 has it\n" in run("dram_read_bytes", "--chip", "GB202", "--release", "12.8")
    fp16 = run("half_precision_fu_utilization", "--chip", "GH100")
    assert "\n  GH100 has no smsp__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active\n" in fp16 and "collect" not in fp16


def test_a_chip_goes_by_the_names_of_its_gpus_too():
    assert run("gld_efficiency", "--chip", "H200") == run("gld_efficiency", "--chip", "GH100")
    assert run("half_precision_fu_utilization", "--chip", "V100").endswith("\n  GV100 has it\n")


def test_what_a_later_chip_counts_apart_is_told():
    line = "  GB100 counts apart smsp__sass_thread_inst_executed_op_ffma2_pred_on.sum: packed instructions, twice the work each\n"
    assert run("flop_count_sp_fma", "--chip", "B200").endswith(line)
    (found,) = json.loads(run("flop_count_sp_fma", "--chip", "B200", "--json"))["found"]
    assert found["beside"] == ["smsp__sass_thread_inst_executed_op_ffma2_pred_on.sum"]
    assert "counts apart" not in run("flop_count_sp_fma", "--chip", "H200")


def test_map_shows_where_the_guides_formula_gives_something_else():
    lines = run("ipc").splitlines()
    assert lines[0] == "ipc = sm__inst_executed.avg.per_cycle_active"
    assert lines[3:5] == [
        "  NVIDIA's guide: smsp__inst_executed.avg.per_cycle_active",
        "  note: the guide counts by sub-partition, of which an SM has four",
    ]


def test_map_evaluates_from_files_and_from_the_command_line(tmp_path):
    file = tmp_path / "counters.json"
    file.write_text('{"smsp__inst_executed_pipe_cbu.sum": 3, "sm__unrelated.sum": null}')
    first = run("cf_executed", "--values", str(file), "--values", "smsp__inst_executed_pipe_adu.sum=4").splitlines()[0]
    assert first == "cf_executed = 7, by smsp__inst_executed_pipe_cbu.sum + smsp__inst_executed_pipe_adu.sum"
    assert "  no value: missing smsp__inst_executed_pipe_adu.sum\n" in run("cf_executed", "--values", str(file))
    renamed = json.loads(run("dram_read_bytes", "--chip", "GB202", "--values", "dram__bytes_op_read.sum=64", "--json"))
    assert (renamed["found"][0]["value"], renamed["found"][0]["missing"]) == (64.0, [])


def test_map_takes_patterns_and_lists_all():
    assert run("gld_t*").splitlines()[0] == "3 old metrics and events: 3 have a new formula, 0 have none"
    everything = json.loads(run("--all", "--json"))["found"]
    assert (len(everything), sum(row["api"] == "metric" for row in everything)) == (339, 212)
    assert run("--reverse", "sm__ctas_launched.sum").startswith("sm__ctas_launched.sum stands for 1 old one\n\nsm_cta_launched = ")
    assert run("tex_utilization").startswith("tex_utilization has no new equivalent: the guide's table has no formula for it\n")


def test_what_map_does_not_know_is_answered_with_what_was_meant():
    with pytest.raises(UllageError, match="'gld_eficiency'") as caught:
        run("gld_eficiency")
    assert "'gld_efficiency'" in caught.value.hint
    with pytest.raises(UllageError) as caught:
        run("sm__inst_executed.sum")
    assert "--reverse sm__inst_executed.sum" in caught.value.hint
    with pytest.raises(UllageError, match="no old metric or event matches"):
        run("zz*")


@pytest.mark.parametrize("content", ["[1]", "{", '{"a__b": "x"}', '{"a__b": true}', '{"a__b": NaN}', "[" * 100_000])
def test_values_that_are_none_are_refused(content, tmp_path):
    file = tmp_path / "counters.json"
    file.write_text(content)
    with pytest.raises(UllageError):
        run("ipc", "--values", str(file))
    with pytest.raises(UllageError, match="can't be read"):
        run("ipc", "--values", str(tmp_path / "none.json"))


def test_a_file_of_values_without_an_end_is_not_read_for_ever():
    with pytest.raises(UllageError, match="/dev/zero is larger than any file of counters"):
        run("ipc", "--values", "/dev/zero")
