"""Finds the known word closest to a misspelled one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to `word`; None: none is close enough."""
    candidates = list(known)
    found = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    if not found:  # NEW_YORK for new_york, maxDelay for max_delay
        plain = {_plain(candidate): candidate for candidate in candidates}
        found = [plain[match] for match in difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.6)]
    return found[0] if found else None


def _plain(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")
