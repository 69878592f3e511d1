"""What stands in the way of a trace or of counters, from described machines."""

import json

import pytest

from ullage.cupti import permissions
from ullage.cupti.permissions import PermissionFinding, diagnose, holders, report
from ullage.cupti.surroundings import Surroundings, surroundings

WELL = Surroundings(driver=13000, cupti=13000, params="RmProfilingAdminOnly: 0", status="CapEff:\t0000000000000000\nTracerPid:\t0")


def changed(**more):
    return Surroundings(**{**WELL.__dict__, **more})


def only(found):
    (finding,) = diagnose(found)
    return finding


def test_a_machine_on_which_nothing_is_in_the_way_has_no_findings():
    assert diagnose(WELL) == []


def test_counters_kept_for_the_administrator_stop_counters_alone():
    finding = only(changed(params="Other: 3\nRmProfilingAdminOnly: 1\n"))
    assert finding.stops == ("counters",) and finding.surely
    assert "NVreg_RestrictProfilingToAdminUsers=0" in finding.do and finding.do.startswith("run as root")


@pytest.mark.parametrize("bit", [21, 38])  # CAP_SYS_ADMIN, CAP_PERFMON
def test_who_has_the_capability_may_read_counters_all_the_same(bit):
    assert diagnose(changed(params="RmProfilingAdminOnly: 1", status=f"CapEff:\t{1 << bit:016x}")) == []


def test_other_capabilities_do_not_help():
    # all of a default container's capabilities: 0xa80425fb has neither bit 21 nor bit 38
    assert only(changed(params="RmProfilingAdminOnly: 1", status="CapEff:\t00000000a80425fb")).stops == ("counters",)


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"files": frozenset({".dockerenv"})}, "--cap-add SYS_ADMIN"),
        ({"cgroup": "0::/system.slice/docker-4711.scope"}, "--cap-add SYS_ADMIN"),
        ({"environment": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}}, "securityContext.capabilities.add: [SYS_ADMIN]"),
        ({"cgroup": "0::/kubepods.slice/pod1"}, "securityContext.capabilities.add: [SYS_ADMIN]"),
    ],
)
def test_in_a_container_the_advice_is_for_containers(more, advice):
    rights, note = diagnose(changed(params="RmProfilingAdminOnly: 1", **more))
    assert advice in rights.do
    assert note.stops == () and "can't be seen from here" in note.what


@pytest.mark.parametrize("process", ["nv-hostengine", "dcgm-exporter"])
def test_dcgm_may_hold_the_counters(process):
    finding = only(changed(processes=("bash", process)))
    assert finding.stops == ("counters",) and not finding.surely
    assert "dcgmi profile --pause" in finding.do and "dcgmi profile --resume" in finding.do


def test_without_a_driver_nothing_goes():
    finding = only(changed(driver=None))
    assert finding.what == "there is no NVIDIA driver here" and finding.stops == ("tracing", "counters")


def test_an_installed_driver_out_of_reach_is_a_container_without_gpus():
    finding = only(changed(driver=None, files=frozenset({"proc/driver/nvidia/version"})))
    assert "can't reach it" in finding.what and "--gpus all" in finding.do


@pytest.mark.parametrize(("driver", "cupti", "surely"), [(12080, 13000, True), (13000, 13010, False)])
def test_a_driver_older_than_the_library_is_told_and_certain_for_another_generation(driver, cupti, surely):
    finding = only(changed(driver=driver, cupti=cupti))
    assert "newer than the driver" in finding.what and finding.surely is surely


@pytest.mark.parametrize(
    ("more", "word", "stops"),
    [
        ({"mig": True}, "MIG", ("counters",)),
        ({"virtual": True}, "vGPU", ("counters",)),
        ({"files": frozenset({"dev/dxg"})}, "WSL", ("counters",)),
        ({"confidential": True}, "confidential computing", ("tracing", "counters")),
    ],
)
def test_a_divided_virtual_or_sealed_gpu_is_told(more, word, stops):
    finding = only(changed(**more))
    assert word in finding.what and finding.stops == stops


def test_who_else_may_be_attached_is_named():
    maps = "7f00-7f01 r-xp 0 0 0 /opt/nsys/libToolsInjection64.so\n7f00-7f01 r-xp 0 0 0 /x/torch/lib/libtorch_cpu.so\n"
    environment = {"CUDA_INJECTION64_PATH": "/opt/other/libspy.so", "NVTX_INJECTION64_PATH": "none"}
    assert holders(changed(maps=maps, environment=environment, status="TracerPid:\t4711")) == [
        "libspy.so (in CUDA_INJECTION64_PATH)",
        "Nsight Systems (nsys)",
        "PyTorch's profiler, if it is on",
        "the debugger with process id 4711",
    ]


def test_our_own_injected_library_is_no_other_profiler():
    assert holders(changed(environment={"CUDA_INJECTION64_PATH": "/home/me/.cache/ullage/recorder.so"})) == []
    assert holders(changed(environment={"CUDA_INJECTION64_PATH": "/tmp/libullage_recorder.so"})) == []


def test_a_hostile_path_can_not_steer_the_terminal():
    (who,) = holders(changed(environment={"CUDA_INJECTION64_PATH": "/tmp/a\x1b[31m.so"}))
    assert who == "a\\x1b[31m.so (in CUDA_INJECTION64_PATH)"


def test_what_stops_most_comes_first():
    found = diagnose(changed(params="RmProfilingAdminOnly: 1", confidential=True, processes=("nv-hostengine",), cgroup="docker"))
    assert [len(finding.stops) for finding in found] == [2, 1, 1, 0]
    assert [finding.surely for finding in found[1:3]] == [True, False]


def test_the_files_of_a_machine_are_read(tmp_path):
    for name, text in {
        "proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n",
        "proc/self/status": "Name:\tpython\nTracerPid:\t7\nCapEff:\t0000000000200000\n",
        "proc/self/cgroup": "0::/kubepods/x\n",
        "proc/self/maps": "",
        "proc/31/comm": "nv-hostengine\n",
        "proc/32/status": "gone",
        "dev/dxg": "",
        ".dockerenv": "",
        "proc/driver/nvidia/capabilities/gpu0/mig/gi7/access": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = surroundings(tmp_path, {})
    assert (found.admin_only, found.traced_by, found.capabilities) == (True, 7, 1 << 21)
    assert (found.kubernetes, found.container, found.mig, found.processes) == (True, True, True, ("nv-hostengine",))
    assert found.files == {"dev/dxg", ".dockerenv"}


def test_of_a_machine_that_tells_nothing_nothing_is_known(tmp_path):
    found = surroundings(tmp_path / "nothing", {})
    assert (found.admin_only, found.capabilities, found.traced_by, found.container, found.mig) == (None, None, 0, False, None)


def test_the_report_of_this_machine_can_be_written_as_json(tmp_path):
    told = report(str(tmp_path / "no libcupti"))
    assert json.loads(json.dumps(told)) == told
    assert (told["library"], told["tracing"], told["counters"]) == (None, "no", "no")
    assert told["findings"][0]["what"].startswith("there is no libcupti at ")


def test_what_is_possible_follows_from_the_findings():
    certain, perhaps = PermissionFinding("a", ("counters",), ""), PermissionFinding("b", ("tracing",), "", surely=False)
    assert permissions._possible([certain, perhaps], "counters") == "no"
    assert permissions._possible([certain, perhaps], "tracing") == "perhaps"
    assert permissions._possible([certain], "tracing") == "yes"
