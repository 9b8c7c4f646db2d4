"""Turns terminal colours into CSS classes, and drops other control sequences. Pure."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)m")
_OTHERS = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_CODES = {1: "ab", 2: "af", 3: "ai", 4: "au", 7: "ar"}
_UNDO = {22: {"ab", "af"}, 23: {"ai"}, 24: {"au"}, 27: {"ar"}}
_COLOURS = {30 + n: f"c{n}" for n in range(8)} | {90 + n: f"c{n}" for n in range(8)}


def marked_up(text: str) -> Markup:
    """The text, escaped, with `<span class>` where a terminal would change its colours."""
    parts: list[Markup] = []
    classes: set[str] = set()
    # Odd parts are the contents of sequences.
    for number, part in enumerate(_SEQUENCE.split(text.replace("\r\n", "\n"))):
        if number % 2:
            classes = _after(classes, part)
            continue
        plain = escape(_OTHERS.sub("", part.replace("\r", "\n")))
        if plain and classes:
            plain = Markup('<span class="{}">{}</span>').format(" ".join(sorted(classes)), plain)
        parts.append(plain)
    return Markup("").join(parts)


def _after(classes: set[str], codes: str) -> set[str]:
    """The classes after a sequence. Parameters of 256 colours and true colours are skipped."""
    numbers = [int(code or 0) for code in re.split("[;:]", codes[:64]) if len(code) < 4]
    found = set(classes)
    while numbers:
        code = numbers.pop(0)
        if code in (38, 48):
            del numbers[: {5: 2, 2: 4}.get(numbers[0] if numbers else 0, 0)]
        elif code == 0:
            found = set()
        elif code in _CODES:
            found.add(_CODES[code])
        elif code in _UNDO:
            found -= _UNDO[code]
        elif code in _COLOURS or code == 39:
            found = {one for one in found if one[0] != "c"} | ({_COLOURS[code]} if code != 39 else set())
    return found
