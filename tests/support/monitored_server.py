"""What Prometheus and Alertmanager see of Heliostat and of dcgm-exporter: metrics of a fixture that grow with each
scrape, targets, and the webhook, each with the token that it needs."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CASES = Path(__file__).parents[1] / "cases" / "monitoring"


@dataclass
class MonitoredServer:
    url: str = ""
    targets: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)  # by scope
    alerts: list[dict[str, Any]] = field(default_factory=list)
    scrapes: int = 0

    def make_token(self, scope: str) -> str:
        self.tokens[scope] = f"helio_{scope}_{len(self.tokens)}"
        return self.tokens[scope]

    def answer(self, path: str, token: str, body: bytes) -> tuple[int, bytes]:
        scope = "alerts" if path.endswith("/alerts") else "metrics"
        if path != "/dcgm" and token != f"Bearer {self.tokens.get(scope)}":
            return 401, b""
        if scope == "alerts":
            self.alerts += json.loads(body)["alerts"]
            return 204, b""
        if path.endswith("/targets"):
            return 200, json.dumps(self.targets).encode()
        if path.endswith("/status"):
            return 200, b"{}"
        self.scrapes += 1
        name = "dcgm.prom" if path == "/dcgm" else "heliostat.prom"
        return 200, re.sub(r" N$", f" {self.scrapes}", (CASES / name).read_text(), flags=re.MULTILINE).encode()


@contextmanager
def monitored_server() -> Iterator[MonitoredServer]:
    with _serving(MonitoredServer()) as server:
        yield server


@contextmanager
def dcgm_exporter() -> Iterator[str]:
    """Its address."""
    with _serving(MonitoredServer(), "/dcgm") as server:
        yield server.url.removeprefix("http://")


@contextmanager
def _serving(server: MonitoredServer, path: str = "") -> Iterator[MonitoredServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            token = self.headers.get("Authorization", "")
            status, content = server.answer(path or self.path, token, body)
            self.send_response(status)
            is_json = "/api/" in self.path
            self.send_header("Content-Type", "application/json" if is_json else "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{httpd.server_port}"
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield server
    httpd.shutdown()
    httpd.server_close()
