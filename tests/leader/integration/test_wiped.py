"""An ensemble without its data: sessions reconnect, and no participant leads in an old epoch."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta

from leader import ElectionPaths
from leader.protocol.terms import EpochRecord, encode_epoch
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.leader.integration.curator.latches import Latches
from tests.leader.integration.curator.participants import Participants

Eventually = Callable[..., None]
SESSION = timedelta(seconds=1.5)
"""After two of them, a client whose servers have older data than it has seen connects like a new one."""


def test_after_a_wipe_a_living_participant_refuses_the_past_and_leads_again_once_the_epoch_is_raised(
    own_zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    with (
        Participants(own_zookeeper.hosts, "/wiped", SESSION) as participants,
        Latches(own_zookeeper.hosts, "/latch", SESSION) as latches,
    ):
        (one,) = participants.queued(eventually, "a")
        latch = latches.started("a")
        eventually(lambda: latch.words == ["is"])
        for number in range(30):  # so that the old ensemble's zxid is higher than the new one's
            one.session.call(one.session.client.create_async, f"/noise-{number}")
        old = one.session.session_id

        own_zookeeper.kill()
        shutil.rmtree(own_zookeeper.data_dir / "data")
        own_zookeeper.start()

        eventually(lambda: one.session.is_connected and one.session.session_id != old, what="a new session")
        eventually(lambda: "wiped" in one.queue.status().why(), what="it says why it does not lead")
        assert not one.leads
        assert one.words == ["elected", "revoked"]
        eventually(lambda: latch.words == ["is", "not", "is"], what="a latch has no epoch, and leads again")
        fresh = participants.candidate("fresh")
        fresh.queue.add_to_leader_lock_queue()
        eventually(lambda: fresh.words == ["elected"], what="who has seen nothing may begin anew")
        assert one.words == ["elected", "revoked"]
        fresh.queue.remove_from_leader_lock_queue()

        epoch = encode_epoch(EpochRecord(7))
        fresh.session.call(fresh.session.client.set_async, ElectionPaths("/wiped").epoch, epoch)
        eventually(lambda: one.leads, what="it leads above what it has seen")
        eventually(lambda: one.epochs == [1, 8])
