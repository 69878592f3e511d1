"""What one instruction does, from its opcode; the control flow that puts it in a loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.kernels.sass.flow import in_loops
from ullage.kernels.sass.instruction import Function, Instruction
from ullage.kernels.sass.work import flops, moved, shape, unit


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("HMMA.16816.F32", 2 * 16 * 8 * 16),
        ("HMMA.1688.F32.TF32", 2 * 16 * 8 * 8),
        ("HMMA.1684.F32.TF32", 2 * 16 * 8 * 4),
        ("HMMA.SP.16832.F32", 2 * 16 * 8 * 32),  # the zeros are counted, as vendors' sparse peaks count them
        ("IMMA.16832.S8.S8", 2 * 16 * 8 * 32),
        ("IMMA.16864.S4.S4", 2 * 16 * 8 * 64),
        ("IMMA.8816.S8.S8", 2 * 8 * 8 * 16),
        ("IMMA.SP.168128.S4.S4", 2 * 16 * 8 * 128),
        ("BMMA.168256.AND.POPC", 2 * 16 * 8 * 256),
        ("DMMA.884", 2 * 8 * 8 * 4),
        ("DMMA.8x8x4", 2 * 8 * 8 * 4),
        ("DMMA.16x8x16", 2 * 16 * 8 * 16),
        ("QMMA.16832.F32.E4M3.E4M3", 2 * 16 * 8 * 32),
        ("OMMA.SF.16864.F32.E2M1.E2M1.E8", 2 * 16 * 8 * 64),
        ("HGMMA.64x256x16.F32", 2 * 64 * 256 * 16),
        ("HGMMA.SP.64x256x32.F32", 2 * 64 * 256 * 32),
        ("QGMMA.64x8x32.F32.E4M3.E4M3", 2 * 64 * 8 * 32),
        ("BGMMA.64x256x256.AND.POPC", 2 * 64 * 256 * 256),
        ("FFMA", 32 * 2),
        ("DFMA", 32 * 2),
        ("FFMA2", 32 * 4),
        ("HFMA2.BF16_V2", 32 * 4),
        ("HADD2", 32 * 2),
    ],
)
def test_an_opcode_tells_its_operations(opcode, expected):
    assert flops(opcode) == expected


@pytest.mark.parametrize("opcode", ["UTCHMMA", "UTCQMMA.2CTA", "HMMA.884.F32.F32.STEP0", "HADD2.F32", "IMAD.MOV.U32", "MOV", "", "HMMA"])
def test_where_the_opcode_does_not_tell_nothing_is_guessed(opcode):
    assert flops(opcode) is None


@given(st.sampled_from(["HGMMA", "QGMMA", "IGMMA"]), st.integers(1, 32), st.sampled_from([8, 16, 32, 64]))
def test_a_warp_group_multiplies_what_its_shape_says(root, eighths, k):
    opcode = f"{root}.64x{8 * eighths}x{k}.F32"
    assert (shape(opcode), flops(opcode), unit(opcode)) == ((64, 8 * eighths, k), 1024 * eighths * k, "warpgroup")


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("LDG.E", {"global": 4}),
        ("LDG.E.64.STRONG.SYS", {"global": 8}),
        ("LDG.E.LTC128B.CONSTANT", {"global": 4}),  # 128 bytes are prefetched into L2; the thread gets 4
        ("LDG.E.U8", {"global": 1}),
        ("LDG.E.ENL2.256", {"global": 32}),
        ("STS.U16", {"shared": 2}),
        ("LDSM.16.M88.4", {"shared": 16}),  # four matrices of 8 × 8 × 2 B = 512 B, over 32 threads
        ("LDSM.16.MT88.2", {"shared": 8}),
        ("LDGSTS.E.BYPASS.LTC128B.128", {"global": 16, "shared": 16}),
        ("STL.128", {"local": 16}),
        ("UBLKCP.S.G", {}),
        ("FFMA", {}),
    ],
)
def test_an_opcode_tells_its_bytes(opcode, expected):
    assert moved(Instruction(0, opcode)) == expected


def code(*lines: tuple[str, str, str]) -> Function:
    return Function("k", "sm_90", tuple(Instruction(16 * n, *line) for n, line in enumerate(lines)))


def test_a_slow_path_behind_the_end_makes_no_loop():
    # 0: to 0x40 if unlucky; 0x40 branches back to 0x10: nothing runs twice
    function = code(("BRA", "0x40", "@P0"), ("HMMA.16816.F32", "", ""), ("EXIT", "", ""), ("NOP", "", ""), ("BRA", "0x10", ""))
    assert in_loops(function) == frozenset()


def test_the_end_that_jumps_to_itself_is_no_loop():
    assert in_loops(code(("EXIT", "", ""), ("BRA", "0x10", ""))) == frozenset()


def test_a_condition_among_the_operands_lets_the_flow_go_on():
    # BRA.U UP0, 0x0 may fall through to the second loop at 0x20–0x30
    function = code(("FFMA", "", ""), ("BRA.U", "UP0,0x0", ""), ("DFMA", "", ""), ("BRA", "0x20", "@P1"), ("EXIT", "", ""))
    assert in_loops(function) == {0x00, 0x10, 0x20, 0x30}


def test_a_routine_called_from_a_loop_is_in_it():
    function = code(
        ("CALL.REL.NOINC", "$routine", ""), ("BRA", "0x0", "@P0"), ("EXIT", "", ""), ("IMMA.16832.S8.S8", "", ""), ("RET", "R2", "")
    )
    assert 0x30 in in_loops(function)


@given(st.lists(st.tuples(st.sampled_from(["FFMA", "BRA", "EXIT"]), st.integers(0, 11), st.booleans()), min_size=1, max_size=12))
def test_an_instruction_is_in_a_loop_when_it_can_be_reached_from_itself(lines):
    function = code(*((root, f"0x{16 * to:x}" if root == "BRA" else "", "@P0" if maybe else "") for root, to, maybe in lines))
    after = {n: set() for n in range(len(lines))}
    for n, (root, to, maybe) in enumerate(lines):
        if root == "BRA":
            after[n].add(to)
        if root == "FFMA" or maybe:
            after[n].add(n + 1)
    reach = {n: {m for m in places if m < len(lines)} for n, places in after.items()}
    for _ in lines:
        reach = {n: places | {further for m in places for further in reach[m]} for n, places in reach.items()}
    # one that jumps to itself alone is the end of a program, not a loop
    expected = {16 * n for n in reach if n in reach[n] and any(n in reach[m] and m != n for m in reach[n])}
    assert in_loops(function) == expected
