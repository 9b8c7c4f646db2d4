"""Makes foreign text safe: a terminal or browser shows its control characters and does not run them. Pure."""

from __future__ import annotations

import re

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""All but tab and line feed; also characters that change the text direction, or break lines."""


def harmless(text: str) -> str:
    """The text with its control characters escaped."""
    return CONTROLS.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
