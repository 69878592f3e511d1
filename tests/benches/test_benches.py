"""Every registered microbenchmark: its tables hold together, its kernels compile everywhere they claim to, and fit the GPU."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.cupti.cubins import needs
from ullage.benches.bench import BENCHES, Case, LibraryCase, Target, cases_for
from ullage.benches.quantities import RULES
from ullage.benches.running.device import PORTABLE_CLUSTER, three
from ullage.benches.source import whole
from ullage.gpus.chip import find
from ullage.gpus.precision import PRECISIONS
from ullage.kernels.compiling import ARCHITECTURES, compile_cubin
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.instruction import loops

pytest.importorskip("cuda.bindings.nvrtc", reason="no NVRTC")
KIB, MIB, GIB = 2**10, 2**20, 2**30
# A GPU of each architecture: SMs, L2 and memory of its data sheet; shared memory by CUDA's table of compute capabilities
TARGETS = {
    "sm_80": Target("sm_80", "NVIDIA A100-SXM4-80GB", 108, 192 * KIB, 40 * MIB, 79 * GIB, 163 * KIB, 164 * KIB),
    "sm_89": Target("sm_89", "NVIDIA GeForce RTX 4090", 128, 128 * KIB, 72 * MIB, 23 * GIB, 99 * KIB, 100 * KIB),
    "sm_90a": Target("sm_90a", "NVIDIA H200", 132, 256 * KIB, 50 * MIB, 138 * GIB, 227 * KIB, 228 * KIB),
    "sm_100a": Target("sm_100a", "NVIDIA B200", 148, 256 * KIB, 126 * MIB, 178 * GIB, 227 * KIB, 228 * KIB),
    "sm_103a": Target("sm_103a", "NVIDIA B300", 148, 256 * KIB, 126 * MIB, 260 * GIB, 227 * KIB, 228 * KIB),
    "sm_120a": Target("sm_120a", "NVIDIA GeForce RTX 5090", 170, 128 * KIB, 96 * MIB, 31 * GIB, 99 * KIB, 100 * KIB),
}
MEMBERS = BENCHES.items()
each = pytest.mark.parametrize("member", [member for _, member in MEMBERS], ids=[name for name, _ in MEMBERS])


def everywhere(member, quick=False):
    """Return (architecture, case) wherever a bench runs."""
    return [(a, case) for a in ARCHITECTURES for case in cases_for(member, TARGETS[a], quick)]


def name(labels):
    return ", ".join(f"{key} {value}" for key, value in labels.items())


def place(member, labels):
    return tuple(labels.get(key) for key in (*member.layout.rows, *member.layout.across))


def test_there_are_benches():
    assert len(MEMBERS) >= 1


@each
def test_it_says_what_it_measures_and_after_whom(member):
    assert member.title and member.source
    assert member.summary.endswith(".") and len(member.page.splitlines()) > 1, "a summary, then how it is measured and read"
    assert set(member.architectures) <= set(ARCHITECTURES)


@each
def test_it_has_cases_where_it_claims_to_run_and_the_quick_ones_are_among_them(member):
    for architecture in ARCHITECTURES if member.needs == "torch" else member.architectures:
        all_cases, quick = (cases_for(member, TARGETS[architecture], short) for short in (False, True))
        assert bool(quick) == bool(all_cases), f"no quick case on {architecture}"
        assert quick or member.needs == "torch", f"no case on {architecture}"  # a library may lack a type there
        known = [dict(case.labels) for case in all_cases]
        assert all(dict(case.labels) in known for case in quick), f"a quick case on {architecture} that the full run lacks"


@each
def test_no_two_cases_measure_the_same(member):
    for architecture in ARCHITECTURES:
        cases = cases_for(member, TARGETS[architecture], False)
        cells = Counter((place(member, case.labels), quantity) for case in cases for quantity in case.quantities)
        assert [one for one, count in cells.items() if count > 1] == []


@each
def test_its_layout_and_its_plot_name_labels_and_quantities_that_exist(member):
    labels = {*member.layout.rows, *member.layout.across}
    for _, case in everywhere(member):
        assert labels <= set(case.labels), name(case.labels)
        assert set(case.quantities) <= set(RULES) and case.quantities
        assert case.precision is None or case.precision in PRECISIONS
    if member.layout.plot:
        x, quantity, series = member.layout.plot
        plotted = [case for _, case in everywhere(member) if quantity in case.quantities]
        assert plotted and all({x, *series} <= {*case.labels, *case.quantities} for case in plotted)


@each
def test_published_figures_are_of_known_gpus_and_of_cases_that_are_measured(member):
    measured = {(place(member, case.labels), quantity) for _, case in everywhere(member) for quantity in case.quantities}
    for figure in member.figures:
        assert find(figure.gpu)
        assert math.isfinite(figure.value) and figure.value > 0
        assert (place(member, figure.labels), figure.quantity) in measured, name(figure.labels)
    told = Counter((figure.gpu, place(member, figure.labels), figure.quantity) for figure in member.figures)
    assert [one for one, count in told.items() if count > 1] == [], "two figures for one cell"


@each
def test_what_a_quantity_needs_is_declared(member):
    wants = {"throughput": "flops", "efficiency": "flops", "bandwidth": "bytes", "bytes_per_cycle": "bytes", "bytes_per_cycle_sm": "bytes"}
    wants |= {"rate": "items", "results_per_cycle_sm": "items"}
    for _, case in everywhere(member):
        for quantity in case.quantities:
            needed = wants.get(quantity)
            assert needed is None or getattr(case, needed) > 0, f"{quantity} of {name(case.labels)} needs {needed}"
            if isinstance(case, LibraryCase):
                assert quantity not in ("latency", "bytes_per_cycle", "bytes_per_cycle_sm", "results_per_cycle_sm"), (
                    "a library call tells no cycles"
                )


@each
def test_its_launches_fit_the_gpu(member):
    for architecture, case in everywhere(member):
        if isinstance(case, Case):
            grid, block = three(case.grid), three(case.block)
            assert grid[0] % case.cluster == 0 and case.cluster <= 2 * PORTABLE_CLUSTER, name(case.labels)
            assert math.prod(block) <= 1024 and case.shared <= TARGETS[architecture].shared_per_block, name(case.labels)
            assert 0 < grid[0] < 2**31 and max(grid[1:]) < 2**16 and case.check_trips > 0 and 0 < case.trips < 2**31, name(case.labels)
            assert case.cluster == 1 or architecture not in ("sm_80", "sm_89"), "clusters came with Hopper"


@each
def test_its_references_give_what_its_kernels_write(member):
    architecture = next(a for a in ("sm_90a", *member.architectures) if a in member.architectures)
    small = replace(TARGETS[architecture], l2=MIB)  # sweeps are over eight times as much: 800 MB of random numbers on an H200
    for case in programs(member, small, True):
        generator = np.random.default_rng(1)
        inputs = case.inputs(generator, "random")
        zeros = case.inputs(generator, "zero") if case.data == "zero" else inputs
        assert [one.shape for one in zeros] == [one.shape for one in inputs]
        found = case.reference(inputs, case.check_trips)
        assert [np.asarray(one).shape for one in found] == [one.shape for one in case.outputs], name(case.labels)
        parameters = needs(compiled(case, architecture), case.entry).parameters
        assert parameters.count(8) == 1 + len(inputs) + len(case.outputs) + len(case.maps), "clocks, inputs, outputs, maps"


def programs(member, target, quick):
    """Return a bench's kernels on a GPU, one case of each program."""
    cases = [case for case in cases_for(member, target, quick) if isinstance(case, Case)]
    return list({(case.source, case.entry, case.options): case for case in cases}.values())


def compiled(case, architecture):
    return compile_cubin(whole(case.source), architecture, case.options)


def refuse_unfit(case, architecture):
    """Compile a case and hold its machine code against what it declares and what the GPU has."""
    cubin = compiled(case, architecture)
    told, threads = needs(cubin, case.entry), math.prod(three(case.block))
    assert told.registers * math.ceil(threads / 32) * 32 <= 65_536, f"{told.registers} registers for each of {threads} threads"
    assert told.shared + case.shared <= TARGETS[architecture].shared_per_block, name(case.labels)
    assert told.parameters[-1 - len(case.scalars) :] == (4,) * (1 + len(case.scalars)), "trips and scalars are ints"
    assert set(told.parameters[: -1 - len(case.scalars)]) == {8} and len(told.parameters) > len(case.outputs) + len(case.scalars) + 1
    if case.issues:
        (function,) = (one for one in disassemble(cubin) if one.name == case.entry)
        assert any(_counted(loop, case.issues) == dict(case.issues) for loop in loops(function)), name(case.labels)


def _counted(loop, issues):
    return {prefix: sum(one.opcode.startswith(prefix) for one in loop) for prefix in issues}


def some(architectures, turn):
    """Return up to two of a bench's architectures: Hopper where it is among them, and another that changes from bench to bench."""
    first = "sm_90a" if "sm_90a" in architectures else architectures[0]
    others = [one for one in architectures if one != first]
    return [first, *([others[turn % len(others)]] if others else [])]


@each
def test_programs_of_it_compile_and_issue_what_they_declare(member):
    turn = list(BENCHES).index(member.name)
    for number, architecture in enumerate(some(member.architectures, turn) if member.needs == "cuda" else ()):
        found = programs(member, TARGETS[architecture], True)
        refuse_unfit(found[number % len(found)], architecture)


@each
@pytest.mark.full
def test_every_program_of_it_compiles_on_each_architecture_and_issues_what_it_declares(member):
    for architecture in member.architectures if member.needs == "cuda" else ():
        for case in programs(member, TARGETS[architecture], False):
            refuse_unfit(case, architecture)


def test_a_cubin_tells_its_parameters_registers_and_shared_memory():
    source = """extern "C" __global__ void __launch_bounds__(64) one(long long *to, int *of, int n, int m) {
        __shared__ int kept[300]; kept[threadIdx.x] = of[n]; __syncthreads(); to[threadIdx.x] = kept[m]; }"""
    for architecture in ARCHITECTURES:
        found = needs(compile_cubin(source, architecture), "one")
        assert (found.parameters, found.shared) == ((8, 8, 4, 4), 1200)
        assert 2 < found.registers <= 64
