"""Pairs of one question: "pac" counts one of them, drawn by a hash before labels are seen.

The errors of a judge on several pairs of one question resemble each other, so these pairs say less
than pairs of different questions. `docs/design/guarantees.md` has the measurements.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

# A digest is so many 64-bit words.
_WORDS = 4


def question_numbers(questions: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Numbers the questions of pairs: pairs of one question have the same number.

    Args:
        questions: Shape (n, 32). Digest of each pair's question; zeros where it is unknown. Such a
            pair counts as its own question.

    Returns:
        Shape (n,). Numbers from 0, without gaps.
    """
    n = len(questions)
    words = np.ascontiguousarray(questions).view(np.uint64).reshape(n, _WORDS)
    known = (words != 0).any(axis=1)
    order = np.lexsort((*words.T[::-1], known))
    sorted_words = words[order]
    # The unknown ones come first, and each of them begins a question.
    begins = ~known[order]
    begins[1:] |= (sorted_words[1:] != sorted_words[:-1]).any(axis=1)
    begins[:1] = True
    numbers = np.empty(n, dtype=np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return numbers


def drawn_pairs(numbers: NDArray[np.int64], lots: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Draws one pair of each question: the one with the smallest lot.

    Args:
        numbers: Shape (n,). Number of each pair's question, from `question_numbers`.
        lots: Shape (n,). Lot of each pair, from `lots_of`.

    Returns:
        Shape (n,). True for the pairs that were drawn.
    """
    order = np.lexsort((lots, numbers))
    is_first = np.ones(len(numbers), dtype=bool)
    is_first[1:] = numbers[order][1:] != numbers[order][:-1]
    drawn = np.zeros(len(numbers), dtype=bool)
    drawn[order[is_first]] = True
    return drawn


def lots_of(digests: Iterable[str]) -> NDArray[np.uint64]:
    """Returns a lot for each pair, a hash of its digest: no label and no score can influence it."""
    return np.fromiter(map(_lot, digests), dtype=np.uint64)


def _lot(digest: str) -> int:
    text = f"one pair a question\0{digest}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
