"""A real WebSocket server to stand behind the proxy. Run as a script: websocket_server.py PORT_FILE"""

import os
import sys

from websockets.sync.server import ServerConnection, serve


def echo_messages(connection: ServerConnection) -> None:
    request = connection.request
    assert request is not None
    connection.send(f"{request.path} {connection.subprotocol} {request.headers.get_all('Cookie')}")
    for message in connection:
        if message == "bye":
            connection.close(4321, "as you wish")
            return
        connection.send(message)


with serve(echo_messages, "127.0.0.1", 0, subprotocols=["v2.kernel", "v1.kernel"], max_size=None) as server:  # type: ignore
    with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:
        file.write(str(server.socket.getsockname()[1]))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    server.serve_forever()
