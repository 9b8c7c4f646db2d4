"""Our card: what we say of ourselves to the other participants, in the queue or not."""

from __future__ import annotations

from dataclasses import replace

from leader.errors import ParticipantIdInUseError, RecordError
from leader.latch.ports import SessionView
from leader.protocol.card import Card, Rank, decode_card, encode_card
from leader.protocol.participant import Participant
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import (
    NodeExistsError,
    NodeMissingError,
    Steps,
    VersionMismatchError,
    create,
    delete_if_there,
    ensure_path,
    get,
    set_data,
)


class CardKeeper:
    """Keeps our card in ZooKeeper as it is here. `card` may be read by the driver alone."""

    def __init__(
        self,
        paths: ElectionPaths,
        session: SessionView,
        participant: Participant,
        *,
        reserve: int,
        nofailover: bool,
    ) -> None:
        self._paths, self._session = paths, session
        rank = Rank(reserve=reserve, id=participant.id)
        self._card = Card(participant, 0, rank, nofailover)
        self._leads = False  # noted in the middle of a hand-over, and put onto the card later
        self._written: Card | None = None

    @property
    def card(self) -> Card:
        """As it should be."""
        if self._card.leads != self._leads:
            self._card = replace(self._card, leads=self._leads)
        return self._card

    def ready(self, ready: bool, missing: int, missing_bytes: int, reasons: tuple[str, ...]) -> bool:
        """Note how ready we are; 0 things missing and not ready is possible.

        Returns:
            Whether we have become ready. To be ready as before is no news: what the guard said stands.
        """
        rank = replace(
            self.card.rank, unready=0 if ready else 2, missing=missing, missing_bytes=missing_bytes
        )
        if ready and rank == self.card.rank:
            return False
        became = ready and self.card.rank.unready != 0
        declined = self.card.declined and not became
        self._card = replace(self.card, rank=rank, reasons=reasons, declined=declined)
        return became

    def judged(self, ready: bool, reasons: tuple[str, ...]) -> None:
        """Note what the guard said."""
        declined, reasons = not ready, () if ready else reasons
        if (self._card.declined, self._card.reasons) != (declined, reasons):
            self._card = replace(self.card, declined=declined, reasons=reasons)

    def leads(self, leads: bool) -> None:
        """Note whether we hold office."""
        self._leads = leads

    def queues(self, queues: bool) -> None:
        """Note whether we are in the queue, or will be again by ourselves."""
        self._card = replace(self.card, queues=queues)

    def look(self) -> Steps[None]:
        """See whether it is still there as we wrote it; if not, `keep` writes it again."""
        written = self._written
        if written is None:
            return
        try:
            data, stat = yield from get(self._paths.card(written.participant.id))
        except NodeMissingError:
            self._written = None
            return
        if stat.owner != written.session_id or data != encode_card(written):
            self._written = None

    def keep(self) -> Steps[None]:
        """Write it, if it is not there as it should be.

        Raises:
            ParticipantIdInUseError: Somebody else's card is there, under our id.
        """
        wanted = self._wanted()
        if wanted == self._written or self._session.session_id is None:
            return
        path = self._paths.card(wanted.participant.id)
        data = encode_card(wanted)
        if self._written is not None and self._written.session_id == wanted.session_id:
            yield from self._rewrite(path, data, wanted)
        if self._written is None or self._written.session_id != wanted.session_id:
            yield from self._place(path, data, wanted)
        self._written = wanted

    def withdraw(self) -> Steps[None]:
        """Take it away, if it is ours."""
        if self._written is not None and self._written.session_id == self._session.session_id:
            yield from delete_if_there(self._paths.card(self.card.participant.id))
        self._written = None

    def _rewrite(self, path: str, data: bytes, wanted: Card) -> Steps[None]:
        """Write over our card; if it was deleted, or another's is there by now, it is to be placed anew."""
        try:
            _, stat = yield from get(path)
            if stat.owner == wanted.session_id:
                yield from set_data(path, data, stat.version)
            else:
                self._written = None
        except (NodeMissingError, VersionMismatchError):
            self._written = None

    def _place(self, path: str, data: bytes, wanted: Card) -> Steps[None]:
        for _ in range(2):
            try:
                yield from create(path, data, ephemeral=True)
            except NodeMissingError:
                yield from ensure_path(self._paths.members)
            except NodeExistsError:
                yield from self._make_room(path, wanted)
            else:
                return
        yield from create(path, data, ephemeral=True)

    def _make_room(self, path: str, wanted: Card) -> Steps[None]:
        """Remove what an older session of ours left; refuse to remove what is another's."""
        try:
            data, stat = yield from get(path)
        except NodeMissingError:
            return
        try:
            holder: Participant | None = decode_card(data, path).participant
        except RecordError:
            holder = None  # no card: whoever put it there, it is in the way
        if stat.owner != wanted.session_id and holder is not None and holder != wanted.participant:
            raise ParticipantIdInUseError(
                path=path, holder=f"{holder.host}:{holder.port}", boot_id=holder.boot_id
            )
        yield from delete_if_there(path)

    def _wanted(self) -> Card:
        return replace(self.card, session_id=self._session.session_id or 0)
