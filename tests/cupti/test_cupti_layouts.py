"""Layouts of activity records per release: against sizes found apart from this data, and against NVIDIA's own library."""

import ctypes
import itertools
import re

import pytest

from tests.cupti.cupti_libraries import each_library
from ullage.cupti.kinds import DEFAULT, GRAPHS, ActivityKind, call_name, kind_name
from ullage.cupti.layouts import layouts
from ullage.cupti.releases import RELEASES, release
from ullage.cupti.stored import stored
from ullage.cupti.walker import measured
from ullage.errors import UllageError

# by cuptiGetVersion: struct and bytes of kernel, memcpy, memset, device, synchronisation, graph trace; from a survey of the headers
SURVEY = {
    18: "Kernel9 208, Memcpy5 88, Memset4 88, Device4 176, Synchronization 40, GraphTrace 48",
    22: "Kernel9 208, Memcpy5 88, Memset4 88, Device5 184, Synchronization 40, GraphTrace2 56",
    24: "Kernel9 208, Memcpy5 88, Memset4 88, Device5 184, Synchronization 40, GraphTrace2 56",
    26: "Kernel9 208, Memcpy6 96, Memset4 88, Device5 184, Synchronization2 56, GraphTrace2 56",
    28: "Kernel9 208, Memcpy6 96, Memset4 88, Device5 184, Synchronization2 56, GraphTrace2 56",
    130001: "Kernel10 216, Memcpy6 96, Memset4 88, Device5 184, Synchronization2 56, GraphTrace2 56",
    130101: "Kernel11 224, Memcpy6 96, Memset4 88, Device5 184, Synchronization2 56, GraphTrace2 56",
    130202: "Kernel11 224, Memcpy6 96, Memset4 88, Device6 192, Synchronization2 56, GraphTrace2 56",
    130301: "Kernel12 232, Memcpy6 96, Memset4 88, Device6 192, Synchronization2 56, GraphTrace2 56",
    130401: "Kernel13 248, Memcpy7 112, Memset5 104, Device6 192, Synchronization2 56, GraphTrace2 56",
    130500: "Kernel13 248, Memcpy7 112, Memset5 104, Device6 192, Synchronization2 56, GraphTrace2 56",
}
SURVEYED = (
    ActivityKind.CONCURRENT_KERNEL,
    ActivityKind.MEMCPY,
    ActivityKind.MEMSET,
    ActivityKind.DEVICE,
    ActivityKind.SYNCHRONIZATION,
    ActivityKind.GRAPH_TRACE,
)
every_release = pytest.mark.parametrize("known", RELEASES, ids=lambda known: str(known.version))


@pytest.mark.parametrize("version", SURVEY)
def test_structs_and_sizes_are_those_of_the_survey(version):
    found = [layouts(release(version)).of(kind) for kind in SURVEYED]
    assert ", ".join(f"{layout.struct.removeprefix('CUpti_Activity')} {layout.size}" for layout in found) == SURVEY[version]


@each_library
def test_sizes_are_those_by_which_the_library_steps(version, library):
    sizes = layouts(release(version)).sizes
    assert measured(library, range(1, 100)) == sizes


@every_release
def test_a_call_has_the_same_forty_bytes_in_every_release(known):
    # kind, cbid, start, end, process, thread, correlation, return value: 4 + 4 + 8 + 8 + 4 * 4
    layout = layouts(known).of(ActivityKind.RUNTIME)
    offsets = {name: offset for name, (_, offset) in layout.dtype.fields.items()}
    assert (layout.size, layout.names) == (40, ())
    assert offsets == {
        "kind": 0, "cbid": 4, "start": 8, "end": 16, "processId": 24, "threadId": 28, "correlationId": 32, "returnValue": 36,
    }  # fmt: skip


@every_release
def test_every_record_begins_with_its_kind_and_its_fields_fit(known):
    for kind in layouts(known).sizes:
        layout = layouts(known).of(kind)
        assert layout.dtype.fields["kind"] == ("<u4", 0)
        assert all(offset + of.itemsize <= layout.size for of, offset, *_ in layout.dtype.fields.values())
        assert layout.dtype.itemsize == layout.size == layouts(known).sizes[kind]
        assert layout.size % 8 == 0
        assert all(layout.dtype.fields[name][0] == "<u8" for name in layout.names)


def test_a_newer_kernel_only_adds_fields_at_its_end():
    kernels = [layouts(known).of(ActivityKind.CONCURRENT_KERNEL).dtype.fields for known in RELEASES]
    for older, newer in itertools.pairwise(kernels):
        assert {name: newer[name] for name in older} == dict(older)


@pytest.mark.parametrize("name", ["CUpti_ActivityMemset4", "CUpti_ActivityMemcpy6"])
def test_a_struct_may_gain_a_field_at_equal_size_under_the_same_name(name):
    having = {known.version: structs(known)[name] for known in RELEASES if name in structs(known)}
    assert len({size for size, _ in having.values()}) == 1
    assert "isDeviceLaunched" not in having[28][1]
    assert "isDeviceLaunched" in having[130202][1]


@pytest.mark.parametrize(("name", "sizes"), [("CUpti_PCSamplingPCData", {56, 64}), ("CUpti_ActivityConfig", {32, 40})])
def test_a_struct_may_grow_under_the_same_name(name, sizes):
    found = [structs(known)[name][0] for known in RELEASES if name in structs(known)]
    assert found == sorted(found)
    assert set(found) == sizes


def structs(known):
    """Return bytes and names of fields of each struct of a release's headers, by its name."""
    numbers = stored("layouts")["releases"][str(known.version)]["structs"]
    found = (stored("layouts")["structs"][number] for number in numbers)
    return {name: (size, {label for label, _, _ in fields}) for name, size, fields in found}


def test_the_one_update_that_changed_a_record_is_told_apart():
    # 13.2.0 has GreenContext, its first update GreenContext2; all other kinds are as they were
    before, after = (layouts(release(version)) for version in (130200, 130201))
    assert {kind for kind in after.sizes if after.of(kind) != before.of(kind)} == {ActivityKind.GREEN_CONTEXT}


def test_the_releases_are_those_of_the_data():
    assert [str(known.version) for known in RELEASES] == list(stored("layouts")["releases"])
    for known in RELEASES:
        wheels = stored("layouts")["releases"][str(known.version)]["wheels"]
        assert wheels[0].startswith(f"{known.name}.")


def test_an_unknown_release_is_refused_with_the_known_ones():
    for version in (0, 17, 25, 29, 120900, 130600, 140000):
        with pytest.raises(UllageError, match=f"{version}") as caught:
            release(version)
        assert "12.9 (28)" in caught.value.hint
        assert "13.5 (130500)" in caught.value.hint


def test_an_update_that_came_later_has_the_records_of_its_release():
    assert layouts(release(130002)).of(ActivityKind.CONCURRENT_KERNEL).size == 216
    assert layouts(release(130299)).of(ActivityKind.GREEN_CONTEXT) == layouts(release(130202)).of(ActivityKind.GREEN_CONTEXT)
    assert release(130599).name == "13.5"


def test_kinds_of_the_profiler_that_ended_with_12_are_unknown_afterwards():
    assert layouts(release(28)).of(ActivityKind.EVENT).size == 24
    assert layouts(release(130000)).of(ActivityKind.EVENT) is None


def test_pointers_to_text_are_found_where_the_recorder_must_look():
    asked = [ActivityKind.MARKER, ActivityKind.CONCURRENT_KERNEL, ActivityKind.RUNTIME, ActivityKind.DEVICE, 4711]
    # device: kind, flags, 2 sizes of 8, 24 numbers of 4, a UUID of 16: 8 + 16 + 96 + 16 = 136. Kernel: 104. Marker: name and domain.
    for version in (28, 130001, 130101):
        assert layouts(release(version)).name_offsets(asked) == "8:136,10:104,12:40+48"
    assert layouts(release(28)).name_offsets([]) == ""


@every_release
def test_what_a_recorder_asks_for_by_default_exists_in_every_release(known):
    assert {kind for kind in DEFAULT | GRAPHS if kind not in layouts(known).sizes} == set()


def test_by_default_nothing_serialises_kernels_and_graphs_are_seen_by_their_nodes():
    assert not DEFAULT & ({ActivityKind.KERNEL} | GRAPHS)


def test_kinds_are_called_as_in_the_headers():
    names = stored("names")["CUpti_ActivityKind"]
    assert {int(kind): name.removeprefix("CUPTI_ACTIVITY_KIND_") for kind, name in names.items()} == {
        kind: kind.name for kind in ActivityKind
    }
    assert [kind_name(kind) for kind in (0, 38, 60)] == ["invalid", "synchronization", "kind 60"]


@each_library
def test_calls_are_called_as_the_library_calls_them(version, library):
    loaded, name = ctypes.CDLL(str(library)), ctypes.c_char_p()
    theirs = {}
    for domain, cbid in ((domain, cbid) for domain in (1, 2) for cbid in range(1, 500)):  # CUPTI_CB_DOMAIN_DRIVER_API, _RUNTIME_API
        if loaded.cuptiGetCallbackName(domain, cbid, ctypes.byref(name)) == 0 and name.value:
            theirs[domain == 1, cbid] = name.value.decode()
    # a version's mark came and went from release to release, and some ids were named later (or no longer are)
    differing = {
        name: ours
        for (driver, cbid), name in theirs.items()
        if _unmarked(ours := call_name(driver, cbid)) != _unmarked(name) and not re.search(r"cuda\d+|reserved", name)
    }
    assert len(theirs) > 800
    assert differing == {}
    assert theirs[False, 211] == "cudaLaunchKernel_v7000"
    assert call_name(False, 211) == "cudaLaunchKernel"


def _unmarked(name):
    return re.sub(r"_v\d+", "", name)
