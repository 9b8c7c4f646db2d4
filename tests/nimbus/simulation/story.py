"""A readable record of the last steps before a law was broken."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

from nimbus.domain import writes as w
from tests.nimbus.simulation.clocks import Time


class Story:
    """Keeps the last `lines` events (None: all); they are formatted only when they are printed."""

    def __init__(self, time: Time, lines: int | None = 80) -> None:
        self._time = time
        self.step = 0
        self._lines: deque[tuple[int, float, str, tuple[object, ...]]] = deque(maxlen=lines)

    def note(self, who: str, *what: object) -> None:
        """Add an event."""
        self._lines.append((self.step, self._time.s, who, what))

    def tell(self) -> list[str]:
        """All lines that were kept."""
        return [
            f"step {step:4} {at_s:9.1f} s  {who:9} {' '.join(map(_word, what))}"
            for step, at_s, who, what in self._lines
        ]

    def digest(self) -> str:
        """A digest of all kept events: equal for equal histories."""
        return blake2b("\n".join(self.tell()).encode(), digest_size=16).hexdigest()


def _word(what: object) -> str:
    if isinstance(what, tuple) and what and isinstance(what[0], w.Write):
        return "; ".join(map(_write, what))
    return str(what)


def _write(write: object) -> str:
    name = type(write).__name__
    match write:
        case w.CreateRun(run) | w.PutRun(run):
            tasks = ", ".join(
                f"{task}:{found.state}" + "".join(f"/{a.outcome or a.worker}" for a in found.attempts)
                for task, found in run.tasks.items()
            )
            return f"{name}({run.id} {run.state} {tasks})"
        case w.PutPipeline(record, _) | w.CreatePipeline(record):
            return f"{name}({record.name} {record.state} {record.schedule_position})"
        case w.Assign(worker, order):
            return f"{name}({order.kind} {order.attempt} to {worker})"
        case w.WriteEnd(attempt, end):
            return f"{name}({attempt} {end.outcome}: {end.reason})"
        case w.ConsumeCommand(outcome):
            return f"{name}({outcome.command} {outcome.code}: {outcome.message})"
        case w.WriteClaim(attempt, _) | w.CreateAttempt(attempt) | w.RemoveAttempt(attempt):
            return f"{name}({attempt})"
        case _:
            return str(write)
