"""Tells from a wheel's file name whether this Python can import it. Pure but for asking who we are.

Not a full resolver of compatibility tags: it says no only where an import would surely fail or crash.
Source: PEP 427, PEP 425, PEP 600.
"""

from __future__ import annotations

import re
import sys
import sysconfig

_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[A-Za-z0-9._!+]+)(?:-\d[A-Za-z0-9._]*)?"
    r"-(?P<python>[A-Za-z0-9._]+)-(?P<abi>[A-Za-z0-9._]+)-(?P<platform>[A-Za-z0-9._]+)\.whl"
)


def why_not_here(
    file_name: str, *, python: tuple[int, int] | None = None, platform: str | None = None
) -> str | None:
    """Say why a wheel cannot be imported here; None when it can, as far as its name tells.

    Args:
        file_name: `name-version(-build)-python-abi-platform.whl`.
        python: Of this interpreter, unless a test says otherwise.
        platform: As of `sysconfig.get_platform()`, likewise.
    """
    match = _NAME.fullmatch(file_name)
    if match is None:
        return "has no valid wheel name (name-version-python-abi-platform.whl)"
    major, minor = python or (sys.version_info.major, sys.version_info.minor)
    if not any(_fits_python(tag, match["abi"], major, minor) for tag in match["python"].split(".")):
        return f"is for Python {match['python']} ({match['abi']}), and this is {major}.{minor}"
    system, _, machine = (platform or sysconfig.get_platform()).partition("-")
    tags = match["platform"].split(".")
    if not any(_fits_platform(tag, system, machine.replace("-", "_")) for tag in tags):
        return f"is for the platform {match['platform']}, and this is {system}-{machine}"
    return None


def _fits_python(tag: str, abi: str, major: int, minor: int) -> bool:
    found = re.fullmatch(r"(py|cp)(\d)(\d*)", tag)
    if found is None or int(found[2]) != major:
        return False
    if not found[3]:
        return True
    wanted = int(found[3])
    # py39 and cp39-abi3 go with all later ones; cp39-cp39 with that one alone.
    return minor >= wanted if found[1] == "py" or abi == "abi3" else minor == wanted


def _fits_platform(tag: str, system: str, machine: str) -> bool:
    if tag == "any":
        return True
    return "linux" in tag and system == "linux" and tag.endswith(f"_{machine}")
