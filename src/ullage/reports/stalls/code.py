"""The machine code of sampled kernels: which cubin it is, its instructions, its lines of source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ullage.errors import UllageError
from ullage.kernels.sass.disassembler import TooSlow
from ullage.kernels.sass.lines import Lined
from ullage.reports.stalls.shares import KernelStalls, Spot


class KernelCode:
    """Finds and disassembles the machine code of kernels, each cubin once; what can't be done becomes a note."""

    def __init__(
        self,
        recorded: Mapping[int, bytes],
        given: Sequence[bytes],
        crc: Callable[[bytes], int] | None,
        disassembled: Callable[[bytes, Sequence[int]], list[Lined]],
        indices: Mapping[int, Sequence[int]],
    ) -> None:
        self.notes: list[str] = []
        self._by_crc, self._given, self._disassembled, self._indices = dict(recorded), given, disassembled, indices
        self._read: dict[bytes, dict[str, Lined]] = {}
        self._slow = False  # whether one took more time than anybody waits: the others are not tried
        for code in given if crc is not None else ():
            try:
                self._by_crc[crc(code)] = code  # type: ignore[misc]  # it is no None here
            except UllageError as error:
                self._note(f"cubins were matched by the names of kernels alone: {error.problem}")

    def joined(self, kernel: KernelStalls) -> KernelStalls:
        """Return the kernel with its instructions and lines, as far as they are found."""
        for code, matched in self._candidates(kernel):
            lined = self._functions(code, self._indices.get(kernel.cubin, ()) if matched == "crc" else (), kernel.mangled).get(
                kernel.mangled
            )
            if lined is not None:
                spots = tuple(_placed(spot, lined) for spot in kernel.spots)
                lost = sum(spot.samples for spot in spots if spot.instruction is None)
                if lost:
                    self._note(f"{lost:,} samples lie outside the code of {kernel.name}: is it the cubin that ran?")
                return KernelStalls(kernel.name, kernel.mangled, kernel.cubin, spots, kernel.shares, matched)
        return kernel

    def _candidates(self, kernel: KernelStalls) -> list[tuple[bytes, str]]:
        if kernel.cubin in self._by_crc:
            return [(self._by_crc[kernel.cubin], "crc")]
        named = [code for code in self._given if kernel.mangled.encode() in code]
        if len(named) > 1:
            self._note(f"{kernel.name} stands in {len(named)} of the cubins, and its CRC tells none of them: left without instructions")
        return [(named[0], "name")] if len(named) == 1 else []

    def _functions(self, code: bytes, indices: Sequence[int], wanted: str) -> dict[str, Lined]:
        if code not in self._read and not self._slow:
            self._read[code] = {}
            for chosen in (indices, ()) if indices else ((),):  # only the sampled ones; a whole library's may take minutes
                try:
                    self._read[code] = {one.function.name: one for one in self._disassembled(code, chosen)}
                except UllageError as error:
                    failed, self._slow = error.problem, isinstance(error, TooSlow)
                    if self._slow:
                        break
                else:
                    failed = ""
                if wanted in self._read[code]:
                    return self._read[code]
            if failed:
                self._note(f"no instructions are shown: {failed}")
        return self._read.get(code, {})

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _placed(spot: Spot, lined: Lined) -> Spot:
    found = lined.at(spot.pc)
    return spot if found is None else Spot(spot.pc, spot.shares, *found)
