"""What is known of an operator's work only together with the kernels that it launched: which of them multiply, and how wide numbers are."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.product import CONVOLUTION, joined_elements, moved_word
from ullage.traces.kineto.convolutions import multiplies
from ullage.traces.kineto.part import NOT_KNOWN, CodedWords

SEVERAL = "\0"  # between a convolution's word and how many of its kernels multiply
# CatArrayBatchedCopy<(anonymous namespace)::OpaqueType<2u>, …>: numbers by their bytes; what copies vectors of them counts otherwise
_WIDTH = re.compile(r"CatArrayBatchedCopy(?!_vectorized)\w*<[^<,]*OpaqueType<(?:\(unsigned int\))?(\d+)u?>")


def settled(asked: CodedWords, kernels: CodedWords, operators: npt.NDArray[np.signedinteger[Any]]) -> CodedWords:
    """Return what kernels were asked for, of which the words of convolutions and of joined tensors are still those of their `operators`.

    A convolution's word stays with the kernels that multiply, if they are as many as it needs, one for each part; else nobody can tell
    who did how much. What tensors are joined by is counted in bytes where the kernel's name says how wide their numbers are.
    """
    open_words = {code for code, word in enumerate(asked.words) if SEVERAL in word or joined_elements(word) is not None}
    chosen = np.flatnonzero(np.isin(asked.codes, list(open_words)))
    if not len(chosen):
        return asked
    words, known = list(asked.words), {word: code for code, word in enumerate(asked.words)}

    def code(word: str | None) -> int:
        if word is None:
            return NOT_KNOWN
        if word not in known:
            known[word] = len(words)
            words.append(word)
        return known[word]

    codes, names = asked.codes.copy(), kernels.words
    does = {name: multiplies(names[name]) for name in np.unique(kernels.codes[chosen]).tolist() if name >= 0}
    rows = [(row, asked.words[asked.codes[row]], int(kernels.codes[row]), int(operators[row])) for row in chosen.tolist()]
    whose = {operator: word for _, word, _, operator in rows if SEVERAL in word}
    work = Counter(operator for _, word, name, operator in rows if SEVERAL in word and does.get(name))
    vague = {operator for _, word, name, operator in rows if SEVERAL in word and does.get(name) is None}
    sure = {o for o, word in whose.items() if o not in vague and o > 0 and work[o] == int(word.partition(SEVERAL)[2])}
    for row, word, name, operator in rows:
        if SEVERAL not in word:
            codes[row] = code(_bytes(joined_elements(word) or 0, names[name] if name >= 0 else ""))
        elif operator in sure:
            codes[row] = code(word.partition(SEVERAL)[0]) if does[name] else NOT_KNOWN
        else:
            codes[row] = code(CONVOLUTION)
    return CodedWords(codes.astype(np.int32), words)


def _bytes(elements: int, kernel: str) -> str | None:
    """Return the bytes that joining so many numbers reads and writes, None where the kernel's name does not tell.

    >>> _bytes(8, "void at::CatArrayBatchedCopy<at::OpaqueType<2u>, unsigned int, 3, 64, 64>(…)"), _bytes(8, "cat")
    ('32 B', None)
    """
    found = _WIDTH.search(kernel)
    return None if found is None else moved_word(2 * elements * int(found[1]))
