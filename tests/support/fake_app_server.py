"""Stands in for code-server and RStudio Server: listens on the socket it is told, and says how it was started."""

import http.server
import json
import os
import socketserver
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"argv": sys.argv[1:], "path": self.path, "headers": self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def socket_from_arguments(words: list[str]) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--socket":
            return following
        if word.startswith("--www-socket="):
            return word.partition("=")[2]
    raise SystemExit("no socket")


os.umask(0o077)
with Server(socket_from_arguments(sys.argv), Handler) as server:
    server.serve_forever()
