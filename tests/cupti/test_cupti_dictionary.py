"""The dictionary of counter metrics: what it says of each release, beside what the releases' own libraries say."""

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ullage.cli._question_command import question_command
from ullage.cupti.metric_names import changes, dictionary
from ullage.cupti.metric_names import dcgm_equivalents as twins
from ullage.cupti.metric_names.dictionary import DictionaryMetric
from ullage.errors import UllageError
from ullage.tables import FIELDS

ASK = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import cupti_dictionary as tool
library = tool.Library(pathlib.Path(sys.argv[2]))
print(json.dumps({"chips": library.chips(), "rows": list(tool.Chip(library, sys.argv[3]).rows())}))
"""
TOOL = Path(__file__).parents[2] / "tools/cupti_dictionary.py"
# counters/ratios/throughputs as the libraries listed them when they were first asked by hand, apart from the tool
COUNTS = {
    "GH100": {
        "12.0": (3068, 169, 27), "12.4": (3159, 171, 27), "12.6": (3231, 185, 55), "12.8": (3284, 193, 56), "12.9": (3379, 199, 56),
        "13.0": (3389, 205, 56), "13.1": (3389, 205, 56), "13.2": (3438, 214, 74), "13.3": (3438, 214, 74), "13.4": (3440, 214, 75),
        "13.5": (3456, 214, 75),
    },
    "GB100": {
        "12.8": (3608, 206, 72), "12.9": (3765, 214, 72), "13.0": (3773, 220, 72), "13.1": (3803, 226, 78), "13.2": (3850, 234, 89),
        "13.3": (3850, 234, 89), "13.4": (3854, 234, 90), "13.5": (3872, 234, 90),
    },
}  # fmt: skip


@pytest.mark.parametrize(("chip", "release"), [(chip, release) for chip, by_release in COUNTS.items() for release in by_release])
def test_a_release_has_as_many_metrics_of_a_chip_as_its_library_lists(chip, release):
    kinds = Counter(dictionary.table(chip, release)["kind"].to_pylist())
    assert (kinds["counter"], kinds["ratio"], kinds["throughput"]) == COUNTS[chip][release]


def test_every_release_from_12_0_to_13_5_is_there_with_its_origin():
    origins = dictionary.provenance()
    # 12.7 was never published
    minors = {"12": [0, 1, 2, 3, 4, 5, 6, 8, 9], "13": [0, 1, 2, 3, 4, 5]}
    assert [origin.release for origin in origins] == [f"{major}.{minor}" for major in minors for minor in minors[major]]
    assert all(origin.version.startswith(f"{origin.release}.") for origin in origins)
    assert all(re.fullmatch("[0-9a-f]{64}", origin.sha256) for origin in origins)
    assert len({origin.sha256 for origin in origins}) == len(origins)
    assert {origin.package for origin in origins} == {"nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12"}


def test_a_chip_is_known_from_the_release_that_brought_it_to_the_last_that_had_it():
    assert dictionary.releases("GB100")[0] == "12.8"
    assert dictionary.releases("GV100")[-1] == "13.0"
    assert {"GV100", "TU102", "GA100", "GA102", "AD102", "GH100"} <= set(dictionary.chips("12.0"))
    assert {"GH100", "GB100", "GB202", "GB110", "GR100"} <= set(dictionary.chips("13.5"))
    assert all(chip in dictionary.chips(release) for chip in dictionary.chips() for release in dictionary.releases(chip))


def test_each_metric_stands_once_and_says_what_it_is():
    for chip in dictionary.chips():
        table = dictionary.table(chip)
        names = table["name"].to_pylist()
        assert names == sorted(set(names)), chip
        assert table.num_rows and not any(table[column].null_count for column in dictionary.COLUMNS)
        assert all(re.fullmatch(r"([\w]+\.)*[A-Za-z0-9]+__\w+", name) for name in names), chip
        assert all(dictionary.base(name) == name == dictionary.base(f"{name}.sum.per_second") for name in names)


def metric_of(name, chip):
    return next(metric for metric in dictionary.metrics(chip) if metric.name == dictionary.base(name))


def test_units_are_those_of_a_sum_a_ratio_and_a_share():
    assert metric_of("dram__bytes_read", "GH100") == DictionaryMetric("dram__bytes_read", "counter", "bytes", "dram")
    assert metric_of("sm__throughput", "GH100").unit == "percent"
    assert metric_of("smsp__average_inst_executed_per_warp", "GH100").unit == "instructions/warps"
    assert metric_of("gpu__time_duration.sum", "GH100").unit == "nanoseconds"


def test_unknown_names_are_answered_with_what_was_meant():
    with pytest.raises(UllageError, match="no chip 'GH1OO'") as caught:
        dictionary.metrics("GH1OO")
    assert "'GH100'" in caught.value.hint
    with pytest.raises(UllageError, match="doesn't know the chip GB100") as caught:
        dictionary.table("GB100", "12.0")
    assert caught.value.hint == "it is in 12.8 to 13.5"
    with pytest.raises(UllageError, match=r"no CUPTI '12\.7'"):
        dictionary.chips("12.7")


def test_the_data_stay_small():
    sizes = [len(resources.files("ullage.cupti").joinpath("data", name).read_bytes()) for name in (dictionary.FILE, "legacy.tsv")]
    assert sum(sizes) < 200_000


def _installed(package: str) -> tuple[str, Path]:
    """Return the version and the libnvperf_host of an installed wheel, or skip."""
    try:
        files = importlib.metadata.files(package) or []
        (library,) = [Path(str(file.locate())) for file in files if file.name == "libnvperf_host.so"]
    except (importlib.metadata.PackageNotFoundError, ValueError):
        pytest.skip(f"{package} is not installed")
    return importlib.metadata.version(package), library


@pytest.mark.parametrize("package", ["nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12"])
def test_an_installed_library_says_today_what_the_dictionary_says(package):
    version, library = _installed(package)
    origins = [origin for origin in dictionary.provenance() if (origin.package, origin.version) == (package, version)]
    if not origins:
        pytest.skip(f"the dictionary was made from another build than {package} {version}")
    assert hashlib.sha256(library.read_bytes()).hexdigest() == origins[0].sha256
    done = subprocess.run([sys.executable, "-c", ASK, str(TOOL.parent), str(library), "GH100"], capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert set(dictionary.chips(origins[0].release)) <= set(found["chips"])  # a library still names some that it can't be asked about
    assert {DictionaryMetric(*row) for row in found["rows"]} == set(dictionary.metrics("GH100", origins[0].release))


def test_the_tool_writes_a_file_that_gives_back_what_each_library_answered(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("cupti_dictionary", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    origin = {"package": "p", "library": "l", "sha256": "0", "asked": "a"}
    first, second = ("sm__a", "counter", "cycles", "sm"), ("sm__b", "ratio", "1", "sm")
    answers = [
        ({**origin, "release": "1.0", "version": "1.0.0"}, {"AA1": [first]}),
        ({**origin, "release": "1.1", "version": "1.1.0"}, {"AA1": [first, second], "AA2": [second]}),
    ]
    tool.write(tool.table(answers), tmp_path / "out.parquet")
    opened = dictionary.opened(tmp_path / "out.parquet")
    monkeypatch.setattr(dictionary, "_file", lambda: opened)
    for cached in (dictionary.releases, dictionary.chips):
        monkeypatch.setattr(dictionary, cached.__wrapped__.__name__, cached.__wrapped__)
    rows = {key: dictionary.table(*key)["name"].to_pylist() for key in (("AA1", "1.0"), ("AA1", "1.1"), ("AA2", "1.1"))}
    assert rows == {("AA1", "1.0"): ["sm__a"], ("AA1", "1.1"): ["sm__a", "sm__b"], ("AA2", "1.1"): ["sm__b"]}
    assert dictionary.chips("1.0") == ("AA1",)


def test_what_went_and_came_under_another_spelling_was_renamed():
    found = changes.between(dictionary.metrics("GH100", "13.5"), dictionary.metrics("GB100", "13.5"))
    renamed = {before.name: after.name for before, after in found.renamed}
    # 3 names of the triage sets, 3 instruction counts and 3 pipe cycles of sm and smsp each, 2 of them in real time, 3 averages
    assert len(renamed) == 3 + 6 + 6 + 2 + 3
    assert renamed["sm__pipe_tensor_op_hmma_cycles_active"] == "sm__pipe_tensor_subpipe_hmma_cycles_active"
    assert not set(renamed) & {metric.name for metric in found.went}
    # 3,456 + 214 + 75 names before: went, renamed, changed or stayed
    assert len(found.went) + len(found.renamed) + len(found.changed) + found.same == 3745


def test_a_name_that_could_have_become_two_is_not_called_renamed():
    before = [DictionaryMetric("sm__a_op_x", "counter", "1", "sm")]
    after = [DictionaryMetric("sm__a_x", "counter", "1", "sm"), DictionaryMetric("sm__a_subpipe_x", "counter", "1", "sm")]
    found = changes.between(before, after)
    assert (len(found.went), len(found.came), found.renamed) == (1, 2, ())


_METRICS = st.dictionaries(
    st.sampled_from(["sm__a", "sm__a_op_b", "sm__a_b", "sm__a_subpipe_b", "sm__c", "sm__op_c", "gpc__a_b"]),
    st.tuples(st.sampled_from(["counter", "ratio"]), st.sampled_from(["1", "bytes"])),
).map(lambda found: [DictionaryMetric(name, *rest, "sm") for name, rest in found.items()])


@given(_METRICS, _METRICS)
def test_every_metric_is_in_one_list_and_the_way_back_is_the_mirror(before, after):
    there, back = changes.between(before, after), changes.between(after, before)
    both = len(there.renamed) + len(there.changed) + there.same
    assert len(there.went) + both == len(before)
    assert len(there.came) + both == len(after)
    assert (set(there.came), set(there.went)) == (set(back.went), set(back.came))
    assert {pair[::-1] for pair in there.renamed} == set(back.renamed)


@pytest.mark.parametrize("chip", dictionary.chips())
def test_every_twin_is_a_metric_of_its_chip_in_the_fields_unit(chip):
    for twin in twins.twins(chip):
        metric = metric_of(twin.metric, chip)
        field = FIELDS[twin.field]
        assert metric.kind == "counter"
        if field.kind == "ratio":
            assert twin.metric.endswith(".pct_of_peak_sustained_elapsed") and twin.factor == 0.01
        else:
            assert (field.unit, metric.unit, twin.factor) == ("B/s", "bytes", 1.0)
        assert twin.status == "inferred from wording"


def test_twins_have_the_names_of_their_chip():
    assert len(twins.twins("GA100")) == 15  # all of DCGM's fields 1001 to 1015
    lacking = {chip: {t.field for t in twins.twins("GA100")} - {t.field for t in twins.twins(chip)} for chip in ("GH100", "GB202")}
    assert lacking == {"GH100": {"fp16_active"}, "GB202": {"fp16_active", "dfma_active", "nvlink_tx", "nvlink_rx"}}
    [imma] = [twin.metric for twin in twins.twins("GB100") if twin.field == "imma_active"]
    assert imma.startswith("sm__pipe_tensor_subpipe_imma_cycles_active.")


def test_diff_begins_with_the_counts():
    done = CliRunner().invoke(question_command("cupti diff"), ["gh100", "12.4", "12.5"])
    assert done.exit_code == 0
    assert done.output == (
        "0 came, 4 went, 2 renamed, 0 changed: GH100 in CUPTI 12.4 → GH100 in CUPTI 12.5; 3,351 are as they were\n\n"
        "Renamed\nbefore                  after\n"
        "ctc__rx__cycles_active  ctc__rx_cycles_active\nctc__tx__cycles_active  ctc__tx_cycles_active\n\n"
        "Went\n2 gpc, 1 gr, 1 fe\n"
        "name                                           kind     unit\n"
        "FE_A.TriageCompute.gr__cycles_active           counter  sys_cycles\n"
        "FE_B.TriageCompute.fe__output_ops_cmd_go_idle  counter  fe_ops\n"
        "GPC_B.TriageCompute.gpc__cgas_completed        counter  unknown\n"
        "GPC_B.TriageCompute.gpc__cgas_launched         counter  unknown\n"
    )


def test_diff_between_chips_can_be_filtered_and_read_by_programs():
    done = CliRunner().invoke(question_command("cupti diff"), ["GH100", "GB100", "13.1", "--match", "pipe_tensor*dmma", "--json"])
    found = json.loads(done.output)
    assert (found["before"], found["after"]["chip"]) == ({"chip": "GH100", "release": "13.1"}, "GB100")
    assert found["counts"]["renamed"] == len(found["renamed"]) > 0
    assert all("dmma" in pair["before"]["name"] for pair in found["renamed"])
    assert found["counts"]["same"] is None


def test_diff_knows_chips_by_their_gpus():
    both = [CliRunner().invoke(question_command("cupti diff"), [*chips, "13.1"]).output for chips in (["H200", "B200"], ["GH100", "GB100"])]
    assert both[0] == both[1] and "GH100 in CUPTI 13.1 → GB100 in CUPTI 13.1" in both[0]


@pytest.mark.parametrize("asked", [["GH100"], ["GH100", "13.1"], ["12.0", "13.1"], ["GH100", "GB100", "GA100"]])
def test_diff_of_what_are_not_two_sides_is_refused(asked):
    done = CliRunner().invoke(question_command("cupti diff"), asked)
    assert done.exit_code == 2 and "name a chip and two releases, or two chips" in done.output
