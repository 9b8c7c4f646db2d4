"""The command that starts another run with the same values. Pure."""

from __future__ import annotations

import json
from shlex import quote

from nimbus.api.models_runs import RunModel


def start_command(run: RunModel) -> str:
    """`nimbus run start` with the values of a run, for a shell."""
    words = ["nimbus run start", quote(run.pipeline)]
    if run.parameters:
        words.append(f"--params {quote(json.dumps(dict(run.parameters), ensure_ascii=False))}")
    words.append(f"--logical-date {run.logical_date.isoformat()}")
    if run.data_interval is not None:
        start, end = run.data_interval.start, run.data_interval.end
        words.append(f"--data-interval {start.isoformat()} {end.isoformat()}")
    return " ".join(words)
