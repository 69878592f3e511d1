"""Instructions compiled and disassembled: Table VI of the Hopper paper, and what other architectures make of them. Needs no GPU."""

from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from ullage.errors import UllageError
from ullage.kernels.compiling import ARCHITECTURES
from ullage.kernels.sass.outcomes import Outcome, outcomes, table
from ullage.kernels.sass.probe import PROBES, Probe
from ullage.kernels.sass.work import flops
from ullage.render import sass_tables

PAGE = Path(__file__).parents[2] / "docs" / "sass.md"
INT4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
INT8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
BINARY = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"
XOR = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"
E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
FP64 = "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
ORDERED = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SPARSE_FP8 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32"
MX = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"


@cache
def of(architecture: str, *names: str) -> dict[str, Outcome]:
    chosen = [one for one in PROBES.values() if one.name in names or one.family in names]
    return {one.probe.name: one for one in outcomes(architecture, chosen)}


def hopper() -> dict[str, Outcome]:
    return of("sm_90a", "mma", "wgmma")


# The paper's Table VI, as printed; "…" stands for the start that all of a kind share.
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "HMMA.16816.F16"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "HMMA.16816.F32"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "HMMA.1688.F32.TF32"),
        (INT8, "IMMA.16832.S8.S8"),
        (BINARY, "BMMA.168256.AND.POPC"),
        ("wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16", "HGMMA.64x256x16.F16"),
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", "HGMMA.64x256x16.F32"),
        ("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32", "HGMMA.64x256x8.F32.TF32"),
        ("wgmma.mma_async.sync.aligned.m64n256k32.f16.e5m2.e5m2", "QGMMA.64x256x32.F16.E5M2.E5M2"),
        ("wgmma.mma_async.sync.aligned.m64n256k32.f16.e4m3.e4m3", "QGMMA.64x256x32.F16.E4M3.E4M3"),
        ("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", "QGMMA.64x256x32.F32.E4M3.E4M3"),
        ("wgmma.mma_async.sync.aligned.m64n256k32.f32.e5m2.e5m2", "QGMMA.64x256x32.F32.E5M2.E5M2"),
        ("wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8", "IGMMA.64x256x32.S8.S8"),
        ("wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc", "BGMMA.64x256x256.AND.POPC"),
    ],
)
def test_table_6_of_the_hopper_paper_comes_out_of_the_compiler(asked, answer):
    assert str(hopper()[asked]) == answer


def test_int4_on_hopper_ends_in_two_int8_products():
    # the paper's table stops at IMAD.MOV.U32, a line of the routine that unpacks
    found = hopper()[INT4]
    assert str(found) == "2 × IMMA.16832.S8.S8, emulated"
    assert "mma_sub_byte_internal_m16n8k64_s4_s4" in found.emulation.evidence.operands


def test_fp8_mma_compiles_for_hopper_and_is_fp16():
    # the paper says that there is none; PTX 8.4 brought it
    assert str(hopper()[E4M3]) == "2 × HMMA.16816.F32, emulated"
    assert hopper()[E4M3].emulation.ceiling.fraction == pytest.approx(490.7 / 1513)


def test_wgmma_has_no_int4_and_the_compiler_says_so():
    refused = hopper()["wgmma.mma_async.sync.aligned.m64n256k64.s32.s4.s4"]
    assert str(refused) == "–" and "types" in refused.refusal and "wgmma.mma_async" in refused.refusal


def test_sparse_instructions_carry_the_uncompressed_k():
    assert str(hopper()[ORDERED]) == "HMMA.SP.16832.F32"
    assert str(hopper()["wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16"]) == "HGMMA.SP.64x256x32.F32"


def test_a_stand_in_does_the_operations_that_were_asked_for():
    # e.g. INT4: 2 × 2·16·8·32 = 2·16·8·64; binary XOR alone takes two products for one
    for name, one in hopper().items():
        if one.refusal or name == XOR:
            continue
        m, n, k = one.probe.asked.shape
        assert sum(count * flops(opcode) for opcode, count in one.opcodes) == 2 * m * n * k, name


@pytest.mark.parametrize(
    ("architecture", "asked", "answer"),
    [
        ("sm_80", INT4, "IMMA.16864.S4.S4"),
        ("sm_80", E4M3, "–"),
        ("sm_89", E4M3, "QMMA.16832.F32.E4M3.E4M3"),
        ("sm_100a", E4M3, "2 × HMMA.16816.F32, emulated"),
        ("sm_100a", BINARY, "8 × IMMA.16832.U8.U8, emulated"),
        ("sm_100a", FP64, "8 × DMMA.8x8x4"),
        ("sm_100a", SPARSE, "HMMA.SP.16832.F32, emulated"),  # its positions are rearranged by a routine
        ("sm_100a", ORDERED, "HMMA.SP.16832.F32"),
        ("sm_100a", SPARSE_FP8, "2 × HMMA.SP.16832.F32, emulated"),
        ("sm_120a", E4M3, "QMMA.16832.F32.E4M3.E4M3"),
        ("sm_120a", INT4, "2 × IMMA.16832.S8.S8, emulated"),
        ("sm_120a", MX, "OMMA.SF.16864.F32.E2M1.E2M1.E8"),
    ],
)
def test_each_architecture_makes_its_own_of_an_instruction(architecture, asked, answer):
    assert str(of(architecture, INT4, E4M3, BINARY, FP64, SPARSE, ORDERED, SPARSE_FP8, MX)[asked]) == answer


def test_hopper_multiplies_binary_and_only_by_and():
    assert str(hopper()[XOR]) == "2 × BMMA.168256.AND.POPC, emulated"
    assert hopper()[BINARY].emulation is None


def test_blackwell_multiplies_from_tensor_memory():
    found = {name: str(one) for name, one in of("sm_100a", "tcgen05").items()}
    assert found["tcgen05.mma.cta_group::1.kind::f16"] == "UTCHMMA"
    assert found["tcgen05.mma.cta_group::2.kind::f16"] == "UTCHMMA.2CTA"
    assert found["tcgen05.mma.cta_group::1.kind::f8f6f4"] == "UTCQMMA"
    assert found["tcgen05.mma.cta_group::1.kind::i8"] == "UTCIMMA"
    assert found["tcgen05.mma.cta_group::1.kind::mxf4.block_scale"] == "UTCOMMA"


def test_copies_clusters_and_dpx_have_instructions_of_their_own_on_hopper():
    found = {name: str(one) for name, one in of("sm_90a", "copy", "cluster", "vector").items()}
    assert found["cp.async.cg.shared.global 16"] == "LDGSTS.E.BYPASS.128"
    assert found["cp.async.bulk.shared::cluster.global"] == "UBLKCP.S.G"
    assert found["cp.async.bulk.tensor.2d.shared::cluster.global"] == "UTMALDG.2D"
    assert found["barrier.cluster.arrive + wait"] == "UCGABAR_ARV + UCGABAR_WAIT"
    assert found["__viaddmax_s16x2_relu"] == "VIADDMNMX.S16x2.RELU"
    assert found["fma.rn.f32x2"] == "–"


def test_an_architecture_that_does_not_exist_is_an_error_and_no_table_of_refusals():
    with pytest.raises(UllageError, match="sm_77"):
        outcomes("sm_77", [PROBES[INT8]])


def test_a_probe_with_a_mistake_is_refused_in_the_compilers_words():
    wrong = Probe("no.such.instruction", "vector", 'asm volatile("no.such.instruction;");', frozenset())
    (found,) = outcomes("sm_90a", [wrong])
    assert "no" in found.refusal and not found.opcodes


def test_every_probe_is_accepted_somewhere():
    # one call an architecture; INT4 wgmma is there to be refused
    accepted = {"wgmma.mma_async.sync.aligned.m64n256k64.s32.s4.s4"}
    for architecture in ("sm_90a", "sm_100a", "sm_120a"):
        missing = [one for one in PROBES.values() if one.name not in accepted]
        accepted |= {one.probe.name for one in outcomes(architecture, missing) if not one.refusal and one.opcodes}
    assert {one.name for one in PROBES.values()} <= accepted


def test_the_page_has_the_papers_table_as_the_compiler_gives_it():
    page = PAGE.read_text(encoding="utf-8")
    assert sass_tables.refreshed(page, {"sass: paper": sass_tables.paper(list(hopper().values()))}) == page


@pytest.mark.full
def test_the_page_has_the_table_of_all_architectures_as_the_compiler_gives_it():
    page = PAGE.read_text(encoding="utf-8")
    assert sass_tables.refreshed(page, {"sass: architectures": sass_tables.markdown(table(ARCHITECTURES))}) == page
