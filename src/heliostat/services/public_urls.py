"""Where browsers find the control plane and the proxy."""

from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

from heliostat.config import ServerSettings
from heliostat.models.sessions import ProxyTarget

ENTRY_PATH = "_heliostat/enter"


@dataclass(frozen=True, slots=True)
class PublicUrls:
    control_url: str = "http://127.0.0.1:8470"
    proxy_url: str = "http://127.0.0.1:8471"  # with a star, each target has a host name of its own
    is_control_url_configured: bool = False  # by the settings; else it is wherever the browser found it
    is_proxy_url_configured: bool = False

    @property
    def has_host_per_target(self) -> bool:
        return "*" in self.proxy_url

    @property
    def is_encrypted(self) -> bool:
        """As the browser sees the proxy."""
        return self.proxy_url.startswith("https://")

    def for_host(self, host: str) -> "PublicUrls":
        """By a browser that found one of them under this host name; names that are told stay."""
        name = urlsplit(f"//{host}").hostname or ""
        if not name:
            return self
        control = self.control_url if self.is_control_url_configured else _moved(self.control_url, name)
        proxy = self.proxy_url if self.is_proxy_url_configured else _moved(self.proxy_url, name)
        return replace(self, control_url=control, proxy_url=proxy)

    def target_url(self, target: ProxyTarget) -> str:
        return f"{self.proxy_url.replace('*', target.name)}{target.path_prefix}"

    def entry_url(self, target: ProxyTarget, code: str, goal: str) -> str:
        """Where the proxy takes a code and leads on."""
        return f"{self.target_url(target)}{ENTRY_PATH}?code={quote(code, safe='')}&next={quote(goal, safe='')}"


def build_public_urls(server: ServerSettings, url: str, proxy_url: str) -> PublicUrls:
    """`url` and `proxy_url` are where the two listen."""
    return PublicUrls(
        control_url=(server.public_url or url).rstrip("/"),
        proxy_url=(server.proxy_url or proxy_url).rstrip("/"),
        is_control_url_configured=server.public_url is not None,
        is_proxy_url_configured=server.proxy_url is not None,
    )


def _moved(address: str, name: str) -> str:
    parts = urlsplit(address)
    host = f"[{name}]" if ":" in name else name
    return parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host).geturl()
