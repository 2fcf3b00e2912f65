"""Those who are told: a real HTTP server and a real mail server, whose manners a test can choose."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult


@dataclass
class ReceivedRequest:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class HttpReceiver:
    """`manner` is what it answers: a status; "slow": nothing until `release`; "drip": a byte now and then."""

    behaviour: int | str = 200
    received: list[ReceivedRequest] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/secret"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def delivered(self) -> list[ReceivedRequest]:
        return list(self.received)


@contextmanager
def running_http_receiver(port: int = 0, manner: int | str = 200) -> Iterator[HttpReceiver]:
    receiver = HttpReceiver(manner)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append(ReceivedRequest(self.path, dict(self.headers), body))
            if receiver.behaviour == "slow":
                receiver.release.wait(60)
            elif receiver.behaviour == "drip":
                while not receiver.release.wait(0.1):
                    try:
                        self.wfile.write(b"x")
                    except OSError:
                        return
            status = receiver.behaviour if isinstance(receiver.behaviour, int) else 200
            try:
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
                self.end_headers()
            except OSError:
                pass

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    server = Quiet(("127.0.0.1", port), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Mailbox:
    mails: list[EmailMessage] = field(default_factory=list)
    refuses: bool = False
    port: int = 0
    logins: list[str] = field(default_factory=list)  # what was said over TLS: name, NUL, password
    unencrypted: list[str] = field(default_factory=list)  # mails that came without TLS

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - the name it has there
        if self.refuses:
            return "451 Try again later"
        if session.ssl is None:
            self.unencrypted.append(str(envelope.rcpt_tos))
        self.mails.append(message_from_bytes(envelope.content, policy=policy.default))  # type: ignore[arg-type]
        return "250 OK"


class _AnyPort(Controller):
    def _trigger_server(self) -> None:
        """Connects to itself to see that it is up; where that is, is known only now."""
        assert self.server is not None
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def running_mail_receiver(tls: ssl.SSLContext | None = None, password: str = "") -> Iterator[Mailbox]:
    """With `tls`, it takes mails only after STARTTLS and a login with that password."""
    box = Mailbox()

    def check(server: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
        box.logins.append(f"{given.login.decode()}\0{given.password.decode()}")
        return AuthResult(success=given.password.decode() == password, handled=False)

    strict: dict[str, Any] = (
        {"require_starttls": True, "auth_required": True, "authenticator": check} if tls else {}
    )
    controller = _AnyPort(box, hostname="127.0.0.1", port=0, ready_timeout=30, tls_context=tls, **strict)
    controller.start()
    box.port = controller.port
    try:
        yield box
    finally:
        controller.stop()
