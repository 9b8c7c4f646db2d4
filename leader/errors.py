"""Every error of this package. One root, stable codes; the messages say what to do."""

from __future__ import annotations


class LeaderError(Exception):
    """Root of all errors raised by `leader`.

    Attributes:
        code: Stable, for machines; the message is for people and may change.
        retryable: Whether the same call may succeed later, without any change of settings or data.
    """

    code = "leader"
    retryable = False


class ElectionConfigError(LeaderError):
    """A setting that cannot work. The message holds the values and says which to change."""

    code = "election_config"


class ElectionStateError(LeaderError):
    """A call that makes no sense now, such as starting a queue twice."""

    code = "election_state"


class ForkedError(ElectionStateError):
    """Use in a forked child, which has no threads of it, and whose socket is the parent's."""

    code = "forked"

    def __init__(self, *, made_in: int) -> None:
        super().__init__(
            f"this was made in process {made_in}, which was forked since: its threads are not in this "
            f"process and its connection belongs to the other. Make a new session here."
        )
        self.made_in = made_in


class ParticipantIdInUseError(LeaderError):
    """Another participant has this id, or an earlier start of this one whose session is not over yet."""

    code = "participant_id_in_use"
    retryable = True

    def __init__(self, *, path: str, holder: str, boot_id: str) -> None:
        super().__init__(
            f"{path} belongs to a participant at {holder} with boot id {boot_id!r}. If that was an earlier "
            f"start of this one, its session will end by itself, and this one goes on; else give one of the "
            f"two another id."
        )
        self.path, self.holder, self.boot_id = path, holder, boot_id


class AclError(LeaderError):
    """Access lists cannot be made what they should be. The message says why and where."""

    code = "acl"


class ZooKeeperUnreachableError(LeaderError):
    """No ZooKeeper server answered when the session was to start."""

    code = "zookeeper_unreachable"
    retryable = True


class ZooKeeperAuthError(LeaderError):
    """ZooKeeper refused the credential."""

    code = "zookeeper_auth"


class ZooKeeperTlsError(LeaderError):
    """A ZooKeeper server was found, and no encrypted connection with it could be agreed on."""

    code = "zookeeper_tls"


class ZooKeeperUnavailableError(LeaderError):
    """A call got no answer: connection lost, session over, or too slow.

    The outcome of a write is then **unknown**: it may have happened, may happen within the
    next moments, or never. Read before you write again.
    """

    code = "zookeeper_unavailable"
    retryable = True

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class RecordError(LeaderError):
    """A node holds something that is not a record of ours, or of a newer schema."""

    code = "record"


class FencedOutError(LeaderError):
    """A guarded write was refused because the epoch it was made in is over."""

    code = "fenced_out"

    def __init__(self, *, path: str, epoch: int) -> None:
        super().__init__(
            f"write under epoch {epoch} refused: {path} is gone or has moved on, so this leadership is over. "
            f"Drop this work; the new leader reads the state and redoes it."
        )
        self.path, self.epoch = path, epoch


class TransactionRefusedError(LeaderError):
    """The fence held, but another operation of the transaction failed; nothing was written.

    Attributes:
        index: Which operation, counted from 0 without the fence.
        path: Its path, where the operation has one.
        cause: kazoo's error, for example BadVersionError. Also the `__cause__`.
    """

    code = "transaction_refused"

    def __init__(self, *, index: int, path: str | None, cause: Exception) -> None:
        super().__init__(
            f"transaction refused, nothing written: operation {index} on {path or 'no path'} failed with "
            f"{type(cause).__name__}. Read the state again and decide anew."
        )
        self.index, self.path, self.cause = index, path, cause


class PublicationError(LeaderError):
    """A component's leader information could not be written, because of an unexpected exception."""

    code = "publication"
    retryable = True

    def __init__(self, *, component: str, cause: Exception) -> None:
        super().__init__(
            f"the leader information of component {component} could not be written "
            f"({type(cause).__name__}: {cause}); it is tried again"
        )
        self.component, self.cause = component, cause


class EpochWentBackwardsError(LeaderError):
    """The stored epoch is below one this process has seen: the ensemble was wiped or restored."""

    code = "epoch_went_backwards"

    def __init__(self, *, path: str, stored: int, seen: int) -> None:
        super().__init__(
            f"{path} holds epoch {stored}, but this process has seen epoch {seen}: ZooKeeper's data was "
            f"wiped or restored from an old copy, and old tokens could become valid again. "
            f"Set the epoch above {seen}, or restart every scheduler once nothing of the old data is in use."
        )
        self.path, self.stored, self.seen = path, stored, seen


def in_words(raised: BaseException) -> str:
    """Type and message of an exception of foreign code, whose `__str__` may raise, too."""
    try:
        return f"{type(raised).__name__}: {raised}"
    except BaseException:  # noqa: BLE001 - its words are foreign code too
        return type(raised).__name__
