"""Why Linux cannot start a file as a program, from its first bytes. Pure.

The kernel's own answers mislead: for a missing interpreter, and for one whose name ends with the carriage
return of a Windows line, it says that the script does not exist.
"""

from __future__ import annotations

HEAD_BYTES = 256
"""The kernel reads no more of a first line."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def fault_of(head: bytes) -> str | None:
    """Why a file with this beginning can be started nowhere; None: there is no reason.

    A file with a zero byte is binary, and what starts it is the host's affair.
    """
    if b"\0" in head:
        return None
    if head.startswith(_BYTE_ORDER_MARK):
        return "it begins with a byte order mark, before #!; save it as UTF-8 without one"
    if not head.startswith(b"#!"):
        return "its first line does not name an interpreter, such as #!/bin/sh"
    if head.partition(b"\n")[0].endswith(b"\r"):
        return "its lines end as in Windows (CRLF); save it with Unix line ends (sed -i 's/\\r$//')"
    if not interpreter_of(head).startswith("/"):
        return f"its first line must name the absolute path of an interpreter, not {interpreter_of(head)!r}"
    return None


def interpreter_of(head: bytes) -> str:
    """The interpreter that a script names; empty: it names none."""
    words = head.partition(b"\n")[0].removeprefix(b"#!").split()
    return words[0].decode(errors="replace") if head.startswith(b"#!") and words else ""
