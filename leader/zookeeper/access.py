"""Access lists: who may do what with a node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from kazoo.security import make_digest_acl_credential

from leader.errors import ElectionConfigError
from leader.zookeeper.config import SASL, ZooKeeperConfig


class Permission(IntFlag):
    """What ZooKeeper tells apart. CREATE and DELETE are about children."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """One entry of an access list.

    Args:
        scheme: For example `world`, `digest`, `sasl`, `x509`.
        id: Whom the scheme calls so: `anyone`, `user:hash of the password`, a user, a subject.
        permissions: What these may do.

    As text it has only as much of a password's hash as tells two passwords apart.
    """

    scheme: str
    id: str
    permissions: Permission

    def __str__(self) -> str:
        held = [one.name or "" for one in Permission if one in self.permissions]
        user, _, password_hash = self.id.partition(":")
        whom = f"{user}:{password_hash[:4]}..." if self.scheme == "digest" and password_hash else self.id
        return f"{self.scheme}:{whom}:{'+'.join(held) or 'NOTHING'}"


OPEN = (Access("world", "anyone", Permission.ALL),)
_READABLE = Access("world", "anyone", Permission.READ)


def default_access(config: ZooKeeperConfig) -> tuple[Access, ...] | None:
    """What new nodes are made with. ZooKeeper puts our credential for `auth`. None: open to everybody."""
    if config.auth is None:
        return None
    ours = Access("auth", "", Permission.ALL)
    return (ours, _READABLE) if config.readable_by_all else (ours,)


def wanted_access(config: ZooKeeperConfig) -> tuple[Access, ...]:
    """What a node made with this configuration has, as ZooKeeper tells it.

    Raises:
        ElectionConfigError: It is not known how ZooKeeper writes credentials of this scheme.
    """
    if config.auth is None:
        return OPEN
    scheme, credential = config.auth
    user, _, password = credential.partition(":")
    if scheme == SASL:
        ours = Access("sasl", user, Permission.ALL)
    elif scheme == "digest":
        ours = Access("digest", make_digest_acl_credential(user, password), Permission.ALL)
    else:
        raise ElectionConfigError(
            f"the access list of scheme {scheme!r} is not known; say which one is wanted"
        )
    return (ours, _READABLE) if config.readable_by_all else (ours,)
