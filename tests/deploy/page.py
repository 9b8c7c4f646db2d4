"""The commands and the files of a page, as a reader finds them, so that a test can follow the page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# (\S+)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: the content of the file that its first line names, or commands."""

    text: str
    file: str | None

    @property
    def lines(self) -> list[str]:
        """Lines that a reader types: not the empty ones, and not the name of the file."""
        return [line for line in self.text.splitlines() if line.strip() and line != f"# {self.file}"]


def sections(page: Path) -> dict[str, list[Block]]:
    """The blocks below each heading of the second level, by its words; the number before them is left out."""
    _, *parts = re.split(r"^## (?:\d+\. )?", page.read_text(), flags=re.MULTILINE)
    return {part.partition("\n")[0]: [_block(found) for found in _BLOCK.findall(part)] for part in parts}


def _block(text: str) -> Block:
    named = _NAME.match(text)
    return Block(text, named[1] if named else None)
