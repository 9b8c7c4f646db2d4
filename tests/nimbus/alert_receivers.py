"""An HTTP server and a mail server that keep all messages."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class HttpReceiver:
    """The requests that a webhook has received."""

    port: int = 0
    status: int = 200
    """Status codes of the next answers."""
    got: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)
    """Headers and bodies."""
    before_answer: Callable[[str], None] = lambda _key: None
    """Called with the idempotency key of each accepted message."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@dataclass
class MailReceiver:
    """The messages that a mail server has received."""

    port: int = 0
    refuses: bool = False
    farewell: bytes = b"221 bye"
    """Answer to QUIT."""
    got: list[Message] = field(default_factory=list)


@contextmanager
def webhook_server() -> Iterator[HttpReceiver]:
    """Serve on loopback."""
    receiver = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((dict(self.headers), body))
            receiver.before_answer(self.headers.get("Idempotency-Key", ""))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Log nothing."""

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        receiver.port = port
        yield receiver


@contextmanager
def mail_server() -> Iterator[MailReceiver]:
    """Serve on loopback. It knows only the SMTP commands that one message needs."""
    receiver = MailReceiver()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test\r\n")
            for line in self.rfile:
                match line.split()[0].upper():
                    case b"RCPT" if receiver.refuses:
                        self.wfile.write(b"550 no such user\r\n")
                    case b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        lines = iter(self.rfile.readline, b".\r\n")
                        receiver.got.append(message_from_bytes(b"".join(lines)))
                        self.wfile.write(b"250 accepted\r\n")
                    case b"QUIT":
                        self.wfile.write(receiver.farewell + b"\r\n")
                        return
                    case _:
                        self.wfile.write(b"250 ok\r\n")

    with _serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        receiver.port = port
        yield receiver


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
