"""Where browsers find the control plane and the proxy."""

from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

from heliostat.config import ServerSettings
from heliostat.models.sessions import Target

ENTER = "_heliostat/enter"


@dataclass(frozen=True, slots=True)
class Addresses:
    control: str = "http://127.0.0.1:8470"
    proxy: str = "http://127.0.0.1:8471"  # with a star, each target has a host name of its own
    is_control_told: bool = False  # by the settings; else it is wherever the browser found it
    is_proxy_told: bool = False

    @property
    def has_own_hosts(self) -> bool:
        return "*" in self.proxy

    @property
    def is_encrypted(self) -> bool:
        """As the browser sees the proxy."""
        return self.proxy.startswith("https://")

    def seen_at(self, host: str) -> "Addresses":
        """By a browser that found one of them under this host name; names that are told stay."""
        name = urlsplit(f"//{host}").hostname or ""
        if not name:
            return self
        control = self.control if self.is_control_told else _moved(self.control, name)
        proxy = self.proxy if self.is_proxy_told else _moved(self.proxy, name)
        return replace(self, control=control, proxy=proxy)

    def of(self, target: Target) -> str:
        return f"{self.proxy.replace('*', target.name)}{target.prefix}"

    def entry(self, target: Target, code: str, goal: str) -> str:
        """Where the proxy takes a code and leads on."""
        return f"{self.of(target)}{ENTER}?code={quote(code, safe='')}&next={quote(goal, safe='')}"


def addresses(server: ServerSettings, url: str, proxy_url: str) -> Addresses:
    """`url` and `proxy_url` are where the two listen."""
    return Addresses(
        control=(server.public_url or url).rstrip("/"),
        proxy=(server.proxy_url or proxy_url).rstrip("/"),
        is_control_told=server.public_url is not None,
        is_proxy_told=server.proxy_url is not None,
    )


def _moved(address: str, name: str) -> str:
    parts = urlsplit(address)
    host = f"[{name}]" if ":" in name else name
    return parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host).geturl()
