"""A driver as it really is, whatever its shell knows or remembers, and the laws about it."""

from __future__ import annotations

from nimbus.attempt.model import Story, Terms


class BrokenLawError(BaseException):
    """A law does not hold. Not an Exception, so that no code under test can catch it."""


def hold(holds: object, *about: object) -> None:
    """Raises BrokenLawError unless a law holds."""
    if not holds:
        raise BrokenLawError(" ".join(map(str, about)))


class Driver:
    """The process that runs the task's code, its descendants, and what is stored of it."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.starts = self.records = 0
        self.runs = self.is_done = self.was_told = self.was_done_when_told = False
        self.remains = self.is_cleared = self.kept = self.is_recorded = False
        self.success: bool | None = None
        """True if it may be reported as a success; None: it has not ended, or nobody saw how."""

    def start(self) -> None:
        """It runs the task's code."""
        hold(not self.starts, "a second driver starts")
        hold(not self.records, "a driver starts after the exit record")
        self.starts += 1
        self.runs = True

    def tell(self) -> bool:
        """It is told to end. Returns true if its code had come to its end before."""
        hold(not self.was_told, "a driver is told to end twice")
        hold(self.starts, "a driver that did not start is told to end")
        self.was_told, self.was_done_when_told = True, self.is_done
        if not self.runs and self.terms.is_program:
            self.success = False  # whether it was told before its exit cannot be seen
        return self.is_done

    def exit(self, status: int, *, remains: bool) -> None:
        """It ends. `remains`: its descendants do not."""
        self.runs, self.remains = False, remains
        self.success = status == 0 and (
            self.was_done_when_told if self.was_told else self.is_done or self.terms.is_program
        )

    def die(self, *, remains: bool) -> None:
        """It is killed with the process that started it."""
        if self.runs:
            self.runs, self.remains = False, remains

    def clear(self) -> None:
        """Its descendants are killed, and itself if it waits for its start."""
        hold(not self.runs, "a driver is cleared away that runs")
        self.remains, self.is_cleared = False, True

    def lose_server(self) -> None:
        """Its Spark Connect server was gone at its end."""
        if not self.was_told and self.terms.is_program:
            self.success = False  # a program leaves no mark, so what it did without its server is unknown

    def commit(self, *, fails: bool) -> None:
        """Its output is stored, or cannot be."""
        hold(not self.remains and not self.runs, "an output is stored while processes may write")
        hold(self.success, "an output of a failure is stored")
        self.kept = not fails

    def record(self, story: Story) -> None:
        """The exit record is being written."""
        hold(not self.records, "a second exit record")
        hold(not self.runs and not self.remains, "an exit record while processes live")
        hold(self.is_cleared, "an exit record while a driver waits")
        self.records += 1
        claims_success = story.is_success(self.terms)
        if claims_success:
            hold(self.success, "a success is recorded that was none:", story)
            hold(self.kept, "a success is recorded without its output")
        if self.success and self.starts and not story.lost:
            hold(claims_success or story.not_kept, "a success is lost:", story)

    def forget(self, *about: object) -> None:
        """Nobody will look for its processes any more."""
        hold(
            not self.runs and not self.remains, "processes are left of an attempt that is forgotten:", *about
        )
