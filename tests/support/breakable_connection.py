"""A TCP port that leads to another one, until the connection is cut."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class BreakableConnection:
    """Forwards `port` to `target`; `cut` closes all connections and the port, `restore` opens the port again."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._sockets: list[socket.socket] = []
        self.restore()

    def restore(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._sockets = [listener]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_forward, args=pair, daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def breakable_connection(target: int) -> Iterator[BreakableConnection]:
    connection = BreakableConnection(target)
    yield connection
    connection.cut()
