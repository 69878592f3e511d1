"""Why a warp didn't issue: every stall reason that CUPTI samples, what it means, what to do, and its name in the old interface."""

from __future__ import annotations

from dataclasses import dataclass

# What CUPTI writes before a reason: PC sampling's names, their older form, and the counters of the same states (`smsp__warps_…`).
PREFIX = "smsp__pcsamp_warps_issue_stalled_"
PREFIXES = (PREFIX, "smsp__pcsamp_warp_stall_", "smsp__warps_issue_stalled_")
LATENCY = "_not_issued"
ALIASES = {"gmma": "warpgroup_arrive", "no_instruction": "no_instructions"}  # how the counters of the same states are called

GROUPS = {
    "issued": "an instruction was issued",
    "ready": "ready, but another warp went first",
    "memory": "waiting for global, local or texture memory",
    "synchronisation": "waiting for other warps",
    "execution": "waiting for a pipe or for a result",
    "instructions": "waiting for the next instruction",
    "other": "other",
}


@dataclass(frozen=True)
class Reason:
    """A state in which a warp is sampled: CUPTI's short name, one of `GROUPS`, what it waits for (reads after "waited for"), what that
    means, what to do, and the old activity interface's name ("" where that had none)."""

    name: str
    group: str
    waits: str
    meaning: str
    advice: str
    old: str


def _reason(name: str, group: str, waits: str, old: str, meaning: str, advice: str) -> tuple[str, Reason]:
    return name, Reason(name, group, waits, meaning, advice, old)


# Names and the old ones: CUPTI 12.0 guide, 2.10.2, table 10; warpgroup_arrive: names in libnvperf_host 12.9 to 13.5 (Hopper).
# Meanings and advice are our words.
REASONS: dict[str, Reason] = dict(
    (
        _reason("selected", "issued", "nothing: it issued", "NONE", "the warp issued an instruction in this cycle", ""),
        _reason(
            "branch_resolving", "instructions", "a branch target", "INST_FETCH", "the target of a branch is being computed",
            "fewer and shorter branches in the loop: predicate, unroll, or hoist the condition",
        ),
        _reason(
            "no_instructions", "instructions", "the next instruction", "INST_FETCH",
            "the instruction isn't there yet: a miss of the instruction cache, or a jump",
            "a smaller loop body (less unrolling, fewer inlined functions); very short kernels always show some",
        ),
        _reason(
            "short_scoreboard", "execution", "shared memory or a slow operation", "EXEC_DEPENDENCY",
            "a result of shared memory, of a special function (MUFU) or of a uniform load isn't there yet",
            "keep values in registers, avoid bank conflicts, load one step ahead, replace division and transcendentals by cheaper forms",
        ),
        _reason(
            "wait", "execution", "a fixed latency", "EXEC_DEPENDENCY", "an instruction of fixed latency before it must end first",
            "more independent work between dependent instructions: unroll, several accumulators; a little of it is normal",
        ),
        _reason(
            "long_scoreboard", "memory", "global, local or texture memory", "MEMORY_DEPENDENCY",
            "a result of global, local, surface or texture memory isn't there yet",
            "load earlier (cp.async, or TMA with more stages), reuse through shared memory, coalesce, raise occupancy, spill less",
        ),
        _reason(
            "tex_throttle", "memory", "room in the texture queue", "TEXTURE", "the queue of texture instructions is full",
            "fewer and wider texture or surface accesses; spread them between other work",
        ),
        _reason(
            "barrier", "synchronisation", "the block's other warps", "SYNC", "the block's other warps haven't come to the barrier",
            "fewer barriers, warps with equal work, smaller blocks, or mbarriers between producer and consumer alone",
        ),
        _reason(
            "membar", "synchronisation", "a memory fence", "SYNC", "a memory fence waits until the writes before it are seen",
            "fences of the narrowest scope (__threadfence_block), fewer of them, fewer writes outstanding before them",
        ),
        _reason(
            "imc_miss", "instructions", "a constant", "CONSTANT_MEMORY_DEPENDENCY", "a constant missed the cache of immediate constants",
            "fewer constants, read in the same order by all warps; look-up tables indexed by thread belong in shared memory",
        ),
        _reason(
            "mio_throttle", "execution", "room in the memory input/output queue", "PIPE_BUSY",
            "the queue of shared-memory, special-function and dynamic-branch instructions is full",
            "fewer and wider accesses to shared memory (LDS.128, ldmatrix), fewer special functions",
        ),
        _reason(
            "math_pipe_throttle", "execution", "an arithmetic pipe", "PIPE_BUSY", "the pipe that the instruction needs is busy",
            "good news where it is the tensor pipe; otherwise spread the work over more pipes or use fewer of these instructions",
        ),
        _reason(
            "drain", "memory", "its last stores", "MEMORY_THROTTLE", "the program has ended and its stores are still on their way",
            "coalesce and widen the stores of the epilogue, or store by TMA; kernels with little work a block show more of it",
        ),
        _reason(
            "lg_throttle", "memory", "room in the load and store queue", "MEMORY_THROTTLE",
            "the queue of global and local accesses is full",
            "wider accesses (128 bits), fewer of them, no spills; TMA needs one instruction for a whole tile",
        ),
        _reason(
            "not_selected", "ready", "its turn", "NOT_SELECTED", "the warp could have issued, but the scheduler took another one",
            "there are warps enough: fewer of them with more registers each may do better",
        ),
        _reason("misc", "other", "something else", "OTHER", "a reason of the hardware's that has no name of its own", ""),
        _reason(
            "dispatch_stall", "execution", "the dispatcher", "OTHER", "the dispatcher held the instruction back",
            "rare; a conflict of register ports or a busy unit behind the scheduler",
        ),
        _reason(
            "sleeping", "synchronisation", "the end of a sleep", "SLEEPING", "all threads of the warp sleep or have yielded",
            "the program asks for it (__nanosleep): poll with shorter sleeps, or wait at an mbarrier",
        ),
        _reason(
            "warpgroup_arrive", "synchronisation", "its warpgroup", "",
            "wgmma's WARPGROUP.ARRIVE or DEPBAR waits (Hopper): for the warpgroup's other warps, or for its own products",
            "keep another wgmma group in flight (wait for all but the newest), and two consumer warpgroups that take turns",
        ),
    )
)  # fmt: skip


def short(name: str) -> tuple[str, bool]:
    """Return a reason's short name, and whether it counts latency samples alone (those in which the scheduler issued nothing).

    >>> short("smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued"), short("smsp__warps_issue_stalled_gmma")
    (('long_scoreboard', True), ('warpgroup_arrive', False))
    """
    for prefix in PREFIXES:
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    plain = name.removesuffix(LATENCY)
    return ALIASES.get(plain, plain), plain != name


def reason(name: str) -> Reason:
    """Return what is known of a reason by any of its names; of one that no release up to 13.5 has, a Reason of group "other".

    >>> reason("smsp__pcsamp_warps_issue_stalled_barrier").old, reason("stuck").group
    ('SYNC', 'other')
    """
    plain, _ = short(name)
    return REASONS.get(plain) or Reason(plain, "other", plain, "a reason that is not known here", "", "")
