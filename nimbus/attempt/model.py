"""Events, instructions and states of an attempt's life."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Optional, Union

NEVER_S = float("inf")


class Ordered(Enum):
    """Why a driver was told to end, if it was."""

    NOT = "not"
    TIMEOUT = "timeout"
    STOP = "stop"
    SERVER_GONE = "server_gone"
    OUTDATED = "outdated"
    """Another process filled END, or the attempt is deleted, so the driver's work is useless."""
    LIMIT = "limit"
    CUT_OFF = "cut_off"
    """The board was silent for the time of the lease, so another attempt may start soon."""


class Terms(NamedTuple):
    """What is agreed for one attempt. Durations in seconds."""

    timeout_s: float = NEVER_S
    """From the start of the driver."""
    stop_grace_s: float = 30.0
    """From the request to end until SIGKILL."""
    claim_valid_s: float = NEVER_S
    """A driver starts without another look at the board only within this time after the claim was first sent.
    Later the session may have expired, and a leader may have closed the attempt."""
    stuck_after_s: float = NEVER_S
    """From SIGKILL until the process that starts drivers counts as stuck."""
    lease_s: float = NEVER_S
    """The driver is killed when the board did not show our claim for this long."""
    is_program: bool = False
    """The driver writes no mark at the end of its code: exit status 0 is a success, unless told to end."""


# --- What the board says ---------------------------------------------------------------------------


class ClaimHolder(Enum):
    """Whose claim the board has."""

    OURS = "ours"
    OTHER = "other"
    NONE = "none"
    """Also for a while if the asked server lags behind."""


class ClaimAnswered(NamedTuple):
    """The board has a claim: ours, or the one that was faster."""

    holder: ClaimHolder
    asked_s: float
    """When the request was first sent."""


class BoardRead(NamedTuple):
    """The board was read."""

    holder: ClaimHolder
    asked_s: float
    """When the read began."""
    end_filled: bool = False
    stop_requested: bool = False
    has_heartbeat: bool = True
    """The board has our heartbeat; without it the leader takes the attempt for lost."""

    @property
    def is_useless(self) -> bool:
        """True if nobody needs our work any more: the attempt is over, or that of a later run."""
        return self.end_filled or self.holder is ClaimHolder.OTHER


class BoardChanged(NamedTuple):
    """The watch of the last read fired: the board has changed, or our session is new."""


class BoardSilent(NamedTuple):
    """`ReadBoard` got no answer. The shell waits before it reports that, or it reads again itself.

    It writes a `SendHeartbeat` or `KeepCheckpoint` again until the board answers; a newer one replaces it.
    """


class NotesRead(NamedTuple):
    """What the task's code has written for us."""

    progress: str
    """As JSON."""
    checkpoint: Optional[str]


class AttemptGone(NamedTuple):
    """The attempt does not exist on the board any more."""


class EndAnswered(NamedTuple):
    """END is filled, by us or another process."""

    what: str
    """Its outcome and writer, as text for the folder."""


# --- What happens on the host ----------------------------------------------------------------------


class Prepared(NamedTuple):
    """Folders and files are there; the driver can start."""


class Unfit(NamedTuple):
    """The attempt cannot start here."""

    why: str
    pipeline_at_fault: bool = False


class Exceeded(NamedTuple):
    """The driver is above a limit."""

    why: str


class ServerGone(NamedTuple):
    """The Spark Connect server of the driver is gone."""


class ToldToEnd(NamedTuple):
    """The driver has got the signal."""

    was_done: bool
    """Its code had come to its end before."""


class Exited(NamedTuple):
    """The driver has ended."""

    status: Optional[int]
    """Like `Popen.returncode`; None: unknown."""
    is_done: bool
    """Its code had come to its end: its mark is there."""
    fault: str = ""
    """Why it never began; empty if it began."""


class StarterDied(NamedTuple):
    """The process that starts drivers has died, and all drivers with it."""


class Cleared(NamedTuple):
    """No process of the attempt is left."""

    server_gone: bool = False


class Committed(NamedTuple):
    """The output is stored, or it cannot be."""

    fault: str = ""


class Recorded(NamedTuple):
    """The exit record is on disk, or cannot be written."""


class LogStored(NamedTuple):
    """The log is stored, or was given up for now."""

    is_complete: bool


class LeaveAsked(NamedTuple):
    """This process must end soon, and wants to claim, or what it asked the board has no answer.

    A running driver continues. Reported again as long as that is so, because states in which nothing is
    asked forget it.
    """


class Tick(NamedTuple):
    """Time has passed."""


Event = Union[
    ClaimAnswered,
    BoardRead,
    BoardChanged,
    BoardSilent,
    NotesRead,
    AttemptGone,
    EndAnswered,
    Prepared,
    Unfit,
    Exceeded,
    ServerGone,
    ToldToEnd,
    Exited,
    StarterDied,
    Cleared,
    Committed,
    Recorded,
    LogStored,
    LeaveAsked,
    Tick,
]


# --- Instructions: each is performed once, in order -------------------------------------------------


class PutClaim(NamedTuple):
    """Put our claim on the board, and answer `ClaimAnswered` or `AttemptGone`."""


class ReadBoard(NamedTuple):
    """Read the board, and answer `BoardRead`, `BoardSilent` or `AttemptGone`."""

    watch: bool = False


class ReadNotes(NamedTuple):
    """Read what the task's code has written, and answer `NotesRead`."""


class SendHeartbeat(NamedTuple):
    """Write our heartbeat, with this progress."""

    progress: str


class KeepCheckpoint(NamedTuple):
    """Store this checkpoint for the next attempt."""

    checkpoint: str


class Prepare(NamedTuple):
    """Make the folders and files of the driver, and answer `Prepared` or `Unfit`."""


class StartDriver(NamedTuple):
    """Let the driver run the task's code, and report `Exited`."""


class AskToEnd(NamedTuple):
    """See if the driver's mark is there, then send SIGTERM, or SIGKILL, and answer `ToldToEnd`."""

    why: Ordered
    kill: bool = False


class KillDriver(NamedTuple):
    """Send SIGKILL to the driver."""


class KillStarter(NamedTuple):
    """Kill the process that starts drivers, and with it all drivers."""


class Clear(NamedTuple):
    """Kill what is left of the attempt's processes, and answer `Cleared`. Its driver may not have started."""


class Commit(NamedTuple):
    """Store the output of a success, and answer `Committed`."""


class Record(NamedTuple):
    """Write the exit record to disk, and answer `Recorded`."""

    story: Story


class PutEnd(NamedTuple):
    """Fill END from the record, and answer `EndAnswered` or `AttemptGone`."""


class StoreLog(NamedTuple):
    """Store the rest of the log, and answer `LogStored`."""


class ForgetAttempt(NamedTuple):
    """Nobody needs anything of this attempt here: it may be removed."""

    why: str


class LeaveAttempt(NamedTuple):
    """Leave the attempt as it is: a worker does the rest."""


Instruction = Union[
    PutClaim,
    ReadBoard,
    ReadNotes,
    SendHeartbeat,
    KeepCheckpoint,
    Prepare,
    StartDriver,
    AskToEnd,
    KillDriver,
    KillStarter,
    Clear,
    Commit,
    Record,
    PutEnd,
    StoreLog,
    ForgetAttempt,
    LeaveAttempt,
]


# --- States ------------------------------------------------------------------------------------------


class Story(NamedTuple):
    """How the driver ended: what a verdict is made of."""

    status: Optional[int] = None
    ordered: Ordered = Ordered.NOT
    came_to_its_end: bool = False
    """Its code ended before it was told to end, if it was."""
    exceeded: str = ""
    refused: str = ""
    pipeline_at_fault: bool = False
    lost: str = ""
    """Why its end could not be seen."""
    not_kept: str = ""

    def is_success(self, terms: Terms) -> bool:
        """True if the code came to its end, and nothing went wrong until now."""
        if self.refused or self.lost or self.not_kept or self.status != 0:
            return False
        return self.came_to_its_end or (terms.is_program and self.ordered is Ordered.NOT)


@dataclass(frozen=True)
class AwaitingClaim:
    """The claim was sent."""


@dataclass(frozen=True)
class Checking:
    """The claim was ours, but that is so long ago that the board is read before the start."""

    board_read_at_s: float = NEVER_S
    gone_since_s: Optional[float] = None
    """Time of the first of the reads in a row that found no claim."""


@dataclass(frozen=True)
class Preparing:
    """The claim is ours; the driver's files are being made."""

    shown_s: float
    """When the request that showed our claim was first sent."""
    ordered: Ordered = Ordered.NOT


@dataclass(frozen=True)
class Running:
    """The driver runs."""

    deadline_s: float
    ordered: Ordered = Ordered.NOT
    was_done: bool = False
    exceeded: str = ""
    kill_at_s: float = NEVER_S
    stuck_at_s: float = NEVER_S
    lease_until_s: float = NEVER_S
    gone_since_s: Optional[float] = None


@dataclass(frozen=True)
class Clearing:
    """The driver has ended; its descendants are being killed."""

    story: Story


@dataclass(frozen=True)
class Committing:
    """The output of a success is being stored."""

    story: Story


@dataclass(frozen=True)
class Recording:
    """The exit record is being written."""


@dataclass(frozen=True)
class Delivering:
    """END is being filled."""


@dataclass(frozen=True)
class Storing:
    """The rest of the log is being stored."""

    why: str


@dataclass(frozen=True)
class Over:
    """Nothing is left to do."""


AfterTheDriver = Union[Clearing, Committing, Recording, Delivering, Storing, Over]
State = Union[AwaitingClaim, Checking, Preparing, Running, AfterTheDriver]
