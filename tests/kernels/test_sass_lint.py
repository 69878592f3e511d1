"""What is emulated and what is of an older generation: on instructions written by hand, and on real machine code from NVRTC."""

import pytest

from ullage.kernels.sass import asked as ptx
from ullage.kernels.sass import ceilings
from ullage.kernels.sass.asked import MatrixInstruction
from ullage.kernels.sass.instruction import Function, Instruction
from ullage.kernels.sass.lint import lint

INT4 = MatrixInstruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", 7, "k")
FP8 = MatrixInstruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 9, "k")
FP16 = MatrixInstruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 5, "k")

LOOP_END = ("BRA", "0x0", "@P0")
UNPACKED = [("F2FP.F16.E4M3.UNPACK_B", "R4,R20", ""), ("F2FP.F16.E4M3.UNPACK_B", "R12,R21.H1", "")]


def function(*lines, architecture="sm_90") -> Function:
    return Function("k", architecture, tuple(Instruction(16 * n, *line) for n, line in enumerate(lines)))


def says(linted) -> list[tuple[str, str, bool]]:
    return [(one.sort, one.stand_in or one.evidence.opcode, one.certain) for one in linted.findings]


def test_a_product_in_a_loop_is_legacy_where_wgmma_exists_and_nowhere_else():
    loop = [("HMMA.16816.F32", "R4,R8,R12,R4", ""), LOOP_END]
    assert says(lint(function(*loop))) == [("legacy", "HMMA.16816.F32", True)]
    assert says(lint(function(*loop, architecture="sm_100"))) == [("legacy", "HMMA.16816.F32", True)]
    for architecture in ("sm_80", "sm_89", "sm_120"):
        assert says(lint(function(*loop, architecture=architecture))) == []


def test_a_product_outside_loops_is_counted_and_not_blamed():
    linted = lint(function(("HMMA.16816.F32", "R4,R8,R12,R4", ""), ("EXIT", "", "")))
    assert [(one.opcode, one.count, one.looped) for one in linted.issued] == [("HMMA.16816.F32", 1, 0)]
    assert linted.findings == ()


def test_an_older_product_beside_wgmma_is_not_blamed():
    assert says(lint(function(("HGMMA.64x256x16.F32", "", ""), ("HMMA.16816.F32", "R4,R8,R12,R4", ""), LOOP_END))) == []


def test_fp64_products_have_no_newer_kind():
    assert says(lint(function(("DMMA.8x8x4", "R4,R8,R12,R4", ""), LOOP_END))) == []


def test_unpacked_fp8_on_both_sides_is_likely_emulation_and_with_ptx_certain():
    code = function(*UNPACKED, ("HMMA.16816.F32", "R4,R4,R12,RZ", ""))
    assert says(lint(code)) == [("emulated", "HMMA.16816.F32", False)]
    assert says(lint(code, [FP8])) == [("emulated", "HMMA.16816.F32", True)]


def test_conversions_that_the_source_wrote_are_no_emulation():
    # the PTX is at hand and asks for FP16 alone
    assert says(lint(function(*UNPACKED, ("HMMA.16816.F32", "R4,R4,R12,RZ", "")), [FP16])) == []


def test_unpacked_weights_against_fp16_activations_are_no_emulation():
    assert says(lint(function(UNPACKED[0], ("HMMA.16816.F32", "R4,R4,R12,RZ", "")))) == []


def test_a_register_that_is_written_again_is_no_longer_unpacked():
    # LDG.E.128 R12 writes R12 to R15
    code = function(*UNPACKED, ("LDG.E.128", "R12,desc[UR4][R2.64]", ""), ("HMMA.16816.F32", "R4,R4,R12,RZ", ""))
    assert says(lint(code)) == []
    code = function(
        *UNPACKED[:1], ("F2FP.F16.E4M3.UNPACK_B", "R14,R21", ""), ("LDSM.16.M88.4", "R12,[R3]", ""), ("HMMA.16816.F32", "R4,R4,R14,RZ", "")
    )
    assert says(lint(code)) == []


@pytest.mark.parametrize(
    ("routine", "kind"),
    [
        ("$__internal_0_$__cuda_sm_9x_mma_sub_byte_internal_m16n8k64_s4_s4", "INT4"),
        ("$__internal_3_$__cuda_sm_9x_mma_sub_byte_internal_sparse_m16n8k128_u4_u4", "INT4"),
        ("$__internal_5_$__cuda_sm_10x_mma_bit_internal_and_m16n8k256", "binary"),
        ("$__internal_1_$__cuda_sm_9x_mma_bit_internal_xor_m16n8k256", "binary XOR"),
        ("$__internal_0_$__cuda_sm_8x_mma_row_col_f32_f16_f16_f32", "Volta-shaped FP16"),
    ],
)
def test_the_assemblers_own_routines_are_certain_signs(routine, kind):
    (finding,) = lint(function(("CALL.REL.NOINC", routine, ""), ("EXIT", "", ""), ("IMMA.16832.S8.S8", "R8,R8,R12,RZ", ""))).findings
    assert finding.certain and finding.what.startswith(f"{kind} mma is emulated")
    assert str(finding.evidence) == f"CALL.REL.NOINC {routine}"


def test_other_routines_of_the_compiler_are_no_signs():
    assert says(lint(function(("CALL.REL.NOINC", "$__internal_0_$__cuda_sm20_div_s64", "")))) == []


def test_rearranged_metadata_is_told_once_and_not_beside_an_emulated_type():
    call = ("CALL.REL.NOINC", "$__internal_2_$__cuda_sm_10x_hmma_mdata_m16n8k32", "")
    (finding,) = lint(function(call, ("HMMA.SP.16832.F32", "R4,R8,R12,R4,R3,0x0", ""), architecture="sm_100")).findings
    assert "positions" in finding.what and finding.remedy == "write mma.sp::ordered_metadata"
    sparse = MatrixInstruction("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32")
    (finding,) = lint(function(call, ("HMMA.SP.16832.F32", "R4,R8,R12,R4,R3,0x0", ""), architecture="sm_100"), [sparse]).findings
    assert finding.what.startswith("FP8 mma is emulated")


def test_a_type_that_was_asked_for_and_is_not_there_is_emulated_whatever_the_code_looks_like():
    (finding,) = lint(function(("IMAD.MOV.U32", "R2,RZ,RZ,R0", ""), ("EXIT", "", "")), [INT4]).findings
    assert finding.what == "INT4 mma is emulated without tensor cores"
    assert finding.asked == INT4


def test_a_stand_in_is_not_called_legacy_as_well():
    call = ("CALL.REL.NOINC", "$__internal_0_$__cuda_sm_9x_mma_sub_byte_internal_m16n8k64_s4_s4", "")
    linted = lint(function(call, LOOP_END, ("EXIT", "", ""), ("IMMA.16832.S8.S8", "R8,R8,R12,RZ", ""), ("RET", "R2", "")))
    assert says(linted) == [("emulated", "IMMA.16832.S8.S8", True)]
    assert [(one.count, one.looped) for one in linted.findings] == [(1, 1)]
    assert [(one.opcode, one.looped) for one in linted.issued] == [("IMMA.16832.S8.S8", 1)]


def test_local_memory_counts_in_loops_alone():
    assert says(lint(function(("STL", "[R1],R3", ""), ("LDL", "R2,[R1]", ""), ("EXIT", "", "")))) == []
    (finding,) = lint(function(("STL", "[R1],R3", ""), ("LDL", "R2,[R1]", ""), LOOP_END)).findings
    assert (finding.sort, finding.count, finding.looped) == ("local memory", 2, 2)


def test_an_empty_function_is_nothing_to_blame():
    assert lint(function(), [FP8]).findings == ()


def test_ceilings_are_the_papers_figures_and_unknown_elsewhere():
    # Table VII, H800: 494.4 of 756.5, 977.9 of 1,513; sparse against twice the dense peak: 1,435 of 3,026
    assert ceilings.legacy("HMMA.16816.F16", "sm_90").fraction == pytest.approx(494.4 / 756.5)
    assert ceilings.legacy("IMMA.16832.S8.S8", "sm_90a").fraction == pytest.approx(0.6463, abs=1e-4)
    assert ceilings.legacy("IMMA.SP.16864.S8.S8", "sm_90").fraction == pytest.approx(0.4742, abs=1e-4)
    assert ceilings.legacy("BMMA.168256.AND.POPC", "sm_90").fraction == 0.629
    assert ceilings.legacy("HMMA.16816.F32", "sm_100").fraction is None
    # FP8 by FP16's instruction: 490.7 of FP8's 1,513; INT4 has no peak of its own on Hopper, so INT8's
    assert ceilings.emulated("e4m3", "HMMA.16816.F32", "sm_90").fraction == pytest.approx(0.3243, abs=1e-4)
    assert ceilings.emulated("s4", "IMMA.16832.S8.S8", "sm_90").of == "dense INT8 peak"
    assert ceilings.emulated("b1.xor", "BMMA.168256.AND.POPC", "sm_90").fraction is None


def test_every_measured_ceiling_is_below_the_peak_and_names_its_table():
    for opcode in ("HMMA.1688.F16", "HMMA.SP.16832.F32", "HMMA.SP.16816.F32.TF32", "IMMA.16816.S8.S8"):
        found = ceilings.legacy(opcode, "sm_90")
        assert 0.3 < found.fraction < 0.7 and "Table VII" in found.source


def test_ptx_is_read_by_function_and_without_its_comments():
    text = """
.version 8.7
.target sm_90a
.visible .func (.param .b32 out) helper(.param .b32 x) { mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {a},{b},{c},{d}; }
.visible .entry _Z1kPj(
    .param .u64 p
) {
    // mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 is slow
    /* wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
    */ @%p1 wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {%f1}, %rd1, %rd2, p, 1, 1;
    tcgen05.mma.cta_group::1.kind::mxf4.block_scale [%r1], %rd1, %rd2, %r2, [%r3], [%r4], p;
}
"""
    assert [(one.function, one.kind, one.line) for one in ptx.read(text)] == [
        ("helper", "f64", 4),
        ("_Z1kPj", "e4m3", 10),
        ("_Z1kPj", "mxf4", 11),
    ]
    assert ptx.entries(text) == ["_Z1kPj"]


def test_a_wmma_instruction_is_known_by_its_types():
    assert MatrixInstruction("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32").kind == "s4"
