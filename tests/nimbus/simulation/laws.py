"""The laws, and the error for a broken law."""

from __future__ import annotations

from enum import Enum


class Law(Enum):
    """Laws that every history must obey."""

    COMMAND_ONCE = "a command is decided once, in the transaction that acts on it"
    TERMS = "each epoch that decided something has a term; epochs rise, terms do not overlap, ends stand"
    SELECTION = "each target of a selection gets one command, a few in each transaction, before its answer"
    COMMAND_ANSWERED = "no command is lost"
    ABDICATION_DONE = "an accepted abdication ends the epoch that it names"
    CODE_ONCE = "user code of an attempt runs at most once"
    DRIVER = "no shell of an attempt does to its driver, its records and its output what the core excludes"
    NOTHING_LEFT = "each process of an attempt ends"
    SLOT_STANDS = "a filled slot never changes"
    END_IS_THE_OUTCOME = "a run's record says of an attempt what its END says"
    ONE_AT_A_TIME = "an attempt opens only when the one before has an END"
    NO_HASTE = "no attempt is called lost before its grace has passed on the clock that does not step"
    ONE_SUCCESS = "a task succeeds at most once, and stays so"
    FINAL_IS_FINAL = "what has ended never changes"
    NEEDS_FIRST = "a task starts only when all that it needs has ended as it asks"
    CLEAN_UP = "a run that has failed starts its clean-up, and if it is to end with the failure, nothing else"
    RESULTS = "a task gets what those that it reads have committed, and its condition is decided by that"
    RETRIES_COUNT = (
        "a task is tried as often as its retries and infrastructure failures allow, no more and no less"
    )
    WAITS = "a task that no worker runs ends as a person decided, by what a leader found, or after its time"
    SLOTS = "no worker has more open attempts than slots"
    TARGET_SLOTS = "no target has more open attempts than slots"
    CONCURRENCY = (
        "no pipeline, and not the cluster, has more runs under way than its limit, and queues keep order"
    )
    RUNS_WHEN_IT_CAN = "no run is queued while each limit leaves it room, and runs that only wait fill none"
    RERUN = "a rerun begins when its run has ended, and reuses only what succeeded"
    PAUSED = "a paused run begins nothing, and stays paused until it is resumed or ends"
    PARALLEL_TASKS = "no run has more open attempts than its limit"
    POOLS = "open attempts take no more of a pool than it has"
    ONE_ORDER = "each open attempt has one order, and nothing else has any"
    FENCED = "a deposed leader writes nothing"
    SHARES = "a place goes to the team that has the smallest part of its share, if it wants one"
    HELD = "nothing of a held pipeline begins, and a hold ends at its time"
    FIRE_ONCE = "each fire time is dealt with once, as the catch-up policy says"
    FIRE_MISSED = "no fire time is missed"
    CALENDAR = "a fire time is decided by the calendar that is set, and is on a day that it works"
    FIRE_LISTED = "a fire time starts a run, or is counted and listed as skipped"
    BACKFILL_ONCE = "each date of a backfill is dealt with once, in the transaction that starts its run"
    BACKFILL_WINDOW = "no backfill has more live runs than its max_parallel"
    INTERVALS = "the index of intervals says how the last run of each ended"
    DATASETS = "each success and each command publishes once, and each partition has its newest version"
    DUE = "what is due for a consumer is what has changed since its last starts"
    DUE_START = "data start a run once for each change, when it is complete, of an active pipeline"
    READS = "a task begins when all that it reads is pinned; pins are published versions, and never change"
    ARCHIVED = "a run leaves ZooKeeper only when history has it, and leaves nothing behind"
    REFUSALS_KEPT = "a refusal leaves ZooKeeper only when history has it"
    INDEXES = "the leader's indexes are what a look at everything finds"
    KNOWS_ALL = "what a leader has read and been told is what ZooKeeper holds"
    NOTHING_FORGOTTEN = "a leader rests only when no rule has anything to decide"
    NEVER_FAILS = "the engine answers for every error, and parks nothing sound"
    ALERT_RAISED = "what there is to tell of a run is written once, with its end"
    ALERT_SENT = "each alert arrives"
    ALERT_ONCE = "an alert arrives twice only if the second says that it may repeat"
    LATE = "what takes too long is told once, not too early, and at the latest when it ends"
    QUEUE_TIMEOUT = "a task fails for want of room only after it has waited as long as it may"
    CHILD_ONCE = "each child run is created once, with its parent's record; what succeeded is not repeated"
    CHILD_PARALLEL = "no task has more open child runs than max_parallel"
    CHILD_END = "a parent's record says of a child run what became of it"
    PARENT_LAST = "a run ends after its child runs, and creates none while it is stopped or paused"
    EXPLAINED = "what does not move while a leader rests has a reason, and it is the true one"
    KEPT = "a kept task ends only with its run or by hand, and one run of the active release is under way"
    ENDS = "while a worker lives every run ends"


class LawBrokenError(BaseException):
    """A law was broken. Not an Exception, so that the engine cannot catch it."""

    def __init__(self, law: Law, note: str) -> None:
        super().__init__(f"{law.value} [{law.name}]: {note}")
        self.law = law


def hold(law: Law, holds: object, *note: object) -> None:
    """Raise if `holds` is false. The note is formatted only then."""
    if not holds:
        raise LawBrokenError(law, " ".join(str(part) for part in note))
