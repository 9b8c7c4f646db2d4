"""Splits SQL text into statements at the semicolons that end one. Pure; knows Spark's quotes and comments."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
      (?P<raw>(?<!\w)[rR](?:'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)))  # r'...': a backslash is a backslash
    | (?P<string>'(?:\\.|''|[^'\\])*(?:'|\Z) | "(?:\\.|""|[^"\\])*(?:"|\Z))
    | (?P<name>`(?:``|[^`])*(?:`|\Z))
    | (?P<line>--[^\n]*)
    | (?P<block>/\*)
    | (?P<end>;)
    | (?P<other>[^'"`;/rR-]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_EDGE = re.compile(r"/\*|\*/")


def split_statements(text: str) -> list[str]:
    """Split SQL text.

    A semicolon in a string, a quoted name or a comment does not end a statement. Block comments nest, as in
    Spark; line comments and text after the last semicolon are kept with their statement. Statements with only
    blanks and comments are left out.

    Returns:
        Statements without their semicolons, in order, stripped.
    """
    statements: list[str] = []
    parts: list[str] = []
    says_something = False
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:  # the last alternative takes any character
            raise AssertionError(text[at : at + 20])
        kind = token.lastgroup
        stop = _end_of_block(text, token.end()) if kind == "block" else token.end()
        if kind == "end":
            if says_something:
                statements.append("".join(parts).strip())
            parts, says_something = [], False
        else:
            parts.append(text[at:stop])
            says_something |= kind not in ("line", "block") and not text[at:stop].isspace()
        at = stop
    if says_something:
        statements.append("".join(parts).strip())
    return statements


def _end_of_block(text: str, at: int) -> int:
    depth = 1
    for edge in _EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
