"""Tells from a wheel's file name whether this Python can import it, by the rules of pip."""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Set
from functools import cache

from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename


def why_not_here(file_name: str, own: Set[Tag] | None = None) -> str | None:
    """Say why a wheel cannot be imported here; None when it can, as far as its name tells.

    Args:
        file_name: `name-version(-build)-python-abi-platform.whl`.
        own: What an interpreter can import; None: this one.
    """
    try:
        *_, tags = parse_wheel_filename(file_name)
    except InvalidWheelFilename as exc:
        return f"has no valid wheel name (name-version-python-abi-platform.whl): {exc}"
    if not tags.isdisjoint(_own_tags() if own is None else own):
        return None
    # As the name spells them: 250 characters can stand for 20,000 combinations.
    needed = "-".join(file_name.removesuffix(".whl").split("-")[-3:])
    return f"is for {needed}, and this is {sysconfig.get_platform()} with Python {platform.python_version()}"


@cache
def _own_tags() -> frozenset[Tag]:
    return frozenset(sys_tags())
