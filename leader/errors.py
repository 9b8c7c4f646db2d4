"""Errors of this package. All have the root `LeaderError` and a stable code. The messages say what to do."""

from __future__ import annotations


class LeaderError(Exception):
    """Root of all errors raised by `leader`.

    Attributes:
        code: Stable, for programs; the message is for people and may change.
        retryable: True when the same call may succeed later without a change of settings or data.
    """

    code = "leader"
    retryable = False


class ElectionConfigError(LeaderError):
    """A setting is invalid. The message contains the values and says which to change."""

    code = "election_config"


class ElectionStateError(LeaderError):
    """A call is invalid in the present state, for example a second start."""

    code = "election_state"


class ForkedError(ElectionStateError):
    """An object was used in a forked child. Its threads exist only in the parent, which owns its socket."""

    code = "forked"

    def __init__(self, *, made_in: int) -> None:
        super().__init__(
            f"this session belongs to process {made_in}, and this process is a fork of it: the session's "
            f"threads do not exist here and its connection is the parent's. Make a new session here."
        )
        self.made_in = made_in


class ParticipantIdInUseError(LeaderError):
    """Another participant has this id, or an earlier process of this one whose session is not over yet."""

    code = "participant_id_in_use"
    retryable = True

    def __init__(self, *, path: str, holder: str, boot_id: str) -> None:
        super().__init__(
            f"{path} belongs to a participant at {holder} with boot id {boot_id!r}. If that is an earlier "
            f"process of this participant, wait: this one continues when the earlier session has ended. "
            f"Otherwise give one of the two another id."
        )
        self.path, self.holder, self.boot_id = path, holder, boot_id


class AclError(LeaderError):
    """Access lists cannot be corrected. The message says where and why."""

    code = "acl"


class ZooKeeperUnreachableError(LeaderError):
    """No ZooKeeper server answered when the session was started."""

    code = "zookeeper_unreachable"
    retryable = True


class ZooKeeperAuthError(LeaderError):
    """ZooKeeper refused the credential."""

    code = "zookeeper_auth"


class ZooKeeperTlsError(LeaderError):
    """A ZooKeeper server answered, but a TLS connection with it could not be set up."""

    code = "zookeeper_tls"


class ZooKeeperUnavailableError(LeaderError):
    """A call got no answer: the connection broke, the session ended, or the time limit passed.

    The outcome of a write is then **unknown**: the write may have been applied, may be applied within the
    next moments, or never. Read the state before you write again.
    """

    code = "zookeeper_unavailable"
    retryable = True

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class RecordError(LeaderError):
    """A node's content is not a record of this package, or a record of another schema."""

    code = "record"


class FencedOutError(LeaderError):
    """A fenced write was refused because its epoch is over."""

    code = "fenced_out"

    def __init__(self, *, path: str, epoch: int) -> None:
        super().__init__(
            f"write under epoch {epoch} refused: {path} was changed or deleted, so this leadership is over. "
            f"Drop this work; the new leader reads the state and redoes it."
        )
        self.path, self.epoch = path, epoch


class TransactionRefusedError(LeaderError):
    """The checks of the fencing token passed, but another operation failed; nothing was written.

    Attributes:
        index: Index of that operation, counted from 0 without the checks of the token.
        cause: kazoo's error, for example BadVersionError. Also the `__cause__`.
    """

    code = "transaction_refused"

    def __init__(self, *, index: int, path: str | None, cause: Exception) -> None:
        super().__init__(
            f"transaction refused, nothing written: operation {index} on {path or 'no path'} failed with "
            f"{type(cause).__name__}. Read the state again and decide again."
        )
        self.index, self.path, self.cause = index, path, cause


class PublicationError(LeaderError):
    """A component's leader information could not be written, because of an unexpected exception."""

    code = "publication"
    retryable = True

    def __init__(self, *, component: str, cause: Exception) -> None:
        super().__init__(
            f"the leader information of component {component} could not be written "
            f"({type(cause).__name__}: {cause}); the write is tried again"
        )
        self.component, self.cause = component, cause


class EpochWentBackwardsError(LeaderError):
    """The stored epoch is below one that this process has seen: ZooKeeper's data was wiped or restored."""

    code = "epoch_went_backwards"

    def __init__(self, *, path: str, stored: int, seen: int) -> None:
        super().__init__(
            f"{path} contains epoch {stored}, but this process has seen epoch {seen}: ZooKeeper's data was "
            f"wiped or restored from an old copy, and old tokens could become valid again. "
            f"Set the epoch above {seen}, or restart all participants when the old data is no longer in use."
        )
        self.path, self.stored, self.seen = path, stored, seen


def in_words(raised: BaseException) -> str:
    """Return type and message of an exception. Its `__str__` may be foreign code and may raise, too."""
    try:
        return f"{type(raised).__name__}: {raised}"
    except BaseException:  # noqa: BLE001 - `__str__` is foreign code
        return type(raised).__name__
