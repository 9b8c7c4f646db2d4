"""Checks wheels by their file names: whether this Python can import them, and whether two are one package."""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Iterable, Set
from functools import cache
from pathlib import PurePath

from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename


def why_not_here(file_name: str, own: Set[Tag] | None = None) -> str | None:
    """Why a wheel cannot be imported here; None if its name shows no reason.

    Args:
        file_name: `name-version(-build)-python-abi-platform.whl`.
        own: The tags that an interpreter supports; None: those of this one.
    """
    try:
        *_, tags = parse_wheel_filename(file_name)
    except InvalidWheelFilename as exc:
        return f"has no valid wheel name (name-version-python-abi-platform.whl): {exc}"
    if not tags.isdisjoint(_own_tags() if own is None else own):
        return None
    # As written in the name, because 250 characters can expand to 20,000 combinations.
    needed = "-".join(file_name.removesuffix(".whl").split("-")[-3:])
    return f"is for {needed}, and this is {sysconfig.get_platform()} with Python {platform.python_version()}"


def same_package(wheels: Iterable[PurePath]) -> tuple[PurePath, PurePath] | None:
    """Two wheels of one package, of which a task could import only one; None if there are none."""
    known: dict[str, PurePath] = {}
    for wheel in wheels:
        other = known.setdefault(canonicalize_name(wheel.name.partition("-")[0]), wheel)
        if other is not wheel:
            return other, wheel
    return None


@cache
def _own_tags() -> frozenset[Tag]:
    return frozenset(sys_tags())
