"""Which tensor instructions binaries really issue, and which of them are emulated or of an older generation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ullage.errors import UllageError, harmless
from ullage.kernels.sass import asked as ptx_text
from ullage.kernels.sass import assembler
from ullage.kernels.sass.asked import MatrixInstruction
from ullage.kernels.sass.binary import CodeImage, Opened, open_binary, target
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.finding import KernelFinding, Linted
from ullage.kernels.sass.instruction import Function
from ullage.kernels.sass.lint import lint
from ullage.views.shown import ShownByView

BAD = ("emulated", "legacy")


@dataclass(frozen=True)
class BinaryKernel:
    """A kernel of a binary: the file and image it stands in, its architecture as precisely as known ("sm_90a"), what its code shows.

    `told` says whether its PTX was at hand.
    """

    image: str
    architecture: str
    linted: Linted
    told: bool

    @property
    def name(self) -> str:
        """The name as written in the binary (mangled, if it is C++)."""
        return self.linted.function.name

    @property
    def bad(self) -> tuple[KernelFinding, ...]:
        """The findings that cost tensor throughput."""
        return tuple(one for one in self.linted.findings if one.sort in BAD)


@dataclass(frozen=True)
class SassReport(ShownByView, view="ullage.render.sass"):
    """Kernels that issue tensor instructions or of which there is something to say; how many others there are; for PTX that could not be
    compiled here, what it asks for; and notes."""

    files: tuple[str, ...]
    kernels: tuple[BinaryKernel, ...]
    others: int
    asked: tuple[MatrixInstruction, ...]
    notes: tuple[str, ...]

    @property
    def bad(self) -> tuple[BinaryKernel, ...]:
        """The kernels with something emulated or legacy."""
        return tuple(one for one in self.kernels if one.bad)


def audit_sass(
    paths: Sequence[Path],
    *,
    kernel: str = "",
    architecture: str | None = None,
    disassembled: Callable[[bytes], list[Function]] = disassemble,
    assembled: Callable[[str, str], bytes] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> SassReport:
    """Return what the kernels in cubins, libraries, executables and PTX files issue; of those whose name holds `kernel`.

    PTX beside machine code says what was asked for, and is compiled only where there is no machine code (of `architecture`). `progress`
    is told what is read at the moment. Raises UllageError for a file that can't be read, and where nothing is left to look at.
    """
    assembled = assembled or assembler.assemble
    given = []
    for path in paths:
        progress(f"opening {harmless(path.name, 60)}")
        given.append(open_binary(path, architecture))
    asked = [_texts(opened, alone=not opened.images) for opened in given]
    notes = [note for opened in given for note in opened.notes]
    images, untold, missing = _images(given, architecture, assembled)
    if not images and not untold:
        raise UllageError(notes[0] if notes else "there is no machine code", "extract what matters: `cuobjdump -xelf NAME FILE`")
    named = [image for image in images if os.fsencode(kernel) in image.cubin]  # names stand there as they are; disassembly is slow
    functions, failed = _functions(named, disassembled, progress)
    functions = _fitting(functions, architecture)
    texts = [text for one in asked for text in one]
    found = [_kernel(image, function, texts) for image, function in functions if kernel in function.name]
    notes += missing + failed
    if kernel and not found and not untold:
        raise UllageError(
            f"no kernel is called '{harmless(kernel, 80)}'", "a part of the name as the binary writes it: `cuobjdump -symbols FILE`"
        )
    shown = tuple(one for one in found if one.linted.issued or one.linted.findings)
    return SassReport(tuple(path.name for path in paths), shown, len(found) - len(shown), tuple(untold), tuple(notes))


@dataclass(frozen=True)
class _Text:
    """A PTX text: its target, whether it came without machine code, and its matrix instructions by entry."""

    target: str
    alone: bool
    entries: Mapping[str, tuple[MatrixInstruction, ...]]

    def tells(self, name: str, architecture: str) -> tuple[MatrixInstruction, ...] | None:
        """Return what the entry asked for; PTX that stands beside machine code in one file speaks for its own architecture alone."""
        same = self.alone or self.target.rstrip("af") == architecture.rstrip("af")
        return self.entries.get(name) if same else None


def _texts(opened: Opened, *, alone: bool) -> list[_Text]:
    texts = []
    for _, text in opened.ptx:
        found = ptx_text.read(text)
        names = ptx_text.entries(text)
        shared = tuple(one for one in found if one.function not in names)  # of functions that any entry may call
        entries = {name: tuple(one for one in found if one.function == name) + shared for name in names}
        texts.append(_Text(target(text) or "", alone, entries))
    return texts


def _images(
    given: Sequence[Opened], architecture: str | None, assembled: Callable[[str, str], bytes]
) -> tuple[list[CodeImage], list[MatrixInstruction], list[str]]:
    """Return the machine code, what PTX asks for that is left without, and why."""
    images = [image for opened in given for image in opened.images]
    if images:
        return images, [], []
    untold: list[MatrixInstruction] = []
    notes = []
    for name, text in (pair for opened in given for pair in opened.ptx):
        wanted = architecture or target(text)
        if wanted is None:
            raise UllageError(f"{harmless(name, 60)} names no .target", "say for which architecture it is to be compiled: --arch sm_90a")
        try:
            images.append(CodeImage(name, wanted, assembled(text, wanted)))
            notes.append(f"{name} was compiled for {wanted} by the ptxas found here; a driver's own may do otherwise")
        except UllageError as error:
            if assembler.ptxas() is not None:
                raise
            untold += ptx_text.read(text)
            notes.append(f"{name} was not compiled: {error.problem}; {error.hint}")
    return images, untold, notes


def _functions(
    images: Sequence[CodeImage], disassembled: Callable[[bytes], list[Function]], progress: Callable[[str], None]
) -> tuple[list[tuple[CodeImage, Function]], list[str]]:
    """Return the functions of images with the image of each, and why an image was left out; raises where none can be read."""
    found: list[tuple[CodeImage, Function]] = []
    failed: list[UllageError] = []
    for number, image in enumerate(images, 1):
        progress(f"disassembling {number:,} of {len(images):,}: {harmless(image.name, 60)}")
        try:
            found += [(image, function) for function in disassembled(image.cubin)]
        except UllageError as error:
            failed.append(UllageError(f"{image.name}: {error.problem}", error.hint))
    if failed and not found:
        raise failed[0]
    return found, [f"{error.problem}; left out" for error in failed]


def _fitting(functions: list[tuple[CodeImage, Function]], architecture: str | None) -> list[tuple[CodeImage, Function]]:
    """Leave out what is for other architectures: of a cubin alone, no name tells, and the machine code tells no letter."""
    if architecture is None:
        return functions
    plain = architecture.rstrip("af")
    kept = [(image, function) for image, function in functions if function.architecture == plain]
    if functions and not kept:
        held = ", ".join(sorted({function.architecture for _, function in functions}))
        raise UllageError(f"no machine code for {architecture} was given", f"there is code for {held}")
    return kept


def _kernel(image: CodeImage, function: Function, texts: Sequence[_Text]) -> BinaryKernel:
    told = (text.tells(function.name, function.architecture) for text in texts)
    asked = next((one for one in told if one is not None), None)
    return BinaryKernel(image.name, image.architecture or function.architecture, lint(function, asked), asked is not None)
