"""The HTTP server: where it listens, how it starts and how it ends."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from typing import Any

import httpx
import pytest

from nimbus.api.app import create_app
from nimbus.api.server import ApiServer, BindError, PortInUseError
from nimbus.localstack.ports import free_port
from nimbus.web.app import add_pages


def test_a_busy_port_is_named_with_its_key_and_leaves_nothing_behind(world: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(PortInUseError) as refused:
            ApiServer(create_app(world.services()), "127.0.0.1", port).start()

    assert f"127.0.0.1:{port}" in str(refused.value)
    assert "scheduler.port" in str(refused.value)
    assert (refused.value.code, refused.value.exit_code) == ("port_in_use", 4)


def test_an_address_of_another_machine_is_refused(world: Any) -> None:
    with pytest.raises(BindError, match=r"scheduler\.host"):
        ApiServer(create_app(world.services()), "192.0.2.1").start()


def test_it_serves_from_its_own_thread_and_frees_the_port_when_stopped(world: Any) -> None:
    app = create_app(world.services())
    server = ApiServer(app, port=free_port())  # a port that the kernel does not give to connections
    server.start()
    assert "nimbus-api" in {thread.name for thread in threading.enumerate()}
    assert httpx.get(f"{server.url}/healthz").status_code == 200

    server.stop()
    server.stop()

    assert "nimbus-api" not in {thread.name for thread in threading.enumerate()}
    again = ApiServer(app, port=server.port)
    again.start()
    assert httpx.get(f"{again.url}/healthz").status_code == 200
    again.stop()


def test_connections_are_answered_without_waiting_for_the_clients_acknowledgement(world: Any) -> None:
    server = ApiServer(create_app(world.services()), port=free_port())
    server.start()
    try:
        with httpx.Client(base_url=server.url) as client:
            assert client.get("/healthz").status_code == 200
            (connection,) = server._server.server_state.connections  # the client keeps it open
            accepted = connection.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        server.stop()


def test_application_is_not_kept_after_its_use(world: Any) -> None:
    services = world.services()
    app = create_app(services)
    add_pages(app, services)
    server = ApiServer(app)
    server.warm_up()
    gone = weakref.ref(app)

    del app, server
    gc.collect()

    assert gone() is None
