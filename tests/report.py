"""The record of a chaos test: a line of JSON for each round, and a table at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The fault and the findings of one round."""

    number: int
    kind: str
    target: str
    run_id: str
    run_s: float
    takeover_s: float | None
    repeats: int
    """Attempts beyond the first of each task."""
    faults: list[str] = field(default_factory=list)
    """The checker's findings; empty if there are none."""
    zombie_writes_accepted: int = 0


def number_from(variable: str, default: int) -> int:
    """A number from the environment."""
    return int(os.environ.get(variable, default))


def append(file: Path, record: Any) -> None:
    """Add a line to the record; a dataclass or a mapping."""
    document = dict(record) if isinstance(record, Mapping) else asdict(record)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(document) + "\n")


def say(capsys: pytest.CaptureFixture[str], lines: Iterable[str]) -> None:
    """Print lines even if the test passes."""
    with capsys.disabled():
        click.echo("")
        for line in lines:
            click.echo(line)


def table(rounds: Sequence[Round]) -> list[str]:
    """One line for each kind of fault, and one for all."""
    kinds = sorted({each.kind for each in rounds})
    head = f"{'fault':<30}{'rounds':>7}{'run s (min/median/max)':>26}{'takeover s (min/median/max)':>30}"
    lines = [head + f"{'repeats':>9}{'broken':>8}{'zombie':>8}"]
    for kind in [*kinds, "all"]:
        own = [each for each in rounds if kind in (each.kind, "all")]
        repeats = sum(each.repeats for each in own)
        broken, zombie = (
            sum(bool(each.faults) for each in own),
            sum(each.zombie_writes_accepted for each in own),
        )
        lines.append(
            f"{kind:<30}{len(own):>7}{spread([each.run_s for each in own]):>26}"
            f"{spread([each.takeover_s for each in own if each.takeover_s is not None]):>30}"
            f"{repeats:>9}{broken:>8}{zombie:>8}"
        )
    return lines


def spread(values: Sequence[float]) -> str:
    """Minimum, median and maximum."""
    if not values:
        return "-"
    ordered = sorted(values)
    return f"{ordered[0]:.2f} / {ordered[len(ordered) // 2]:.2f} / {ordered[-1]:.2f}"
