"""Public URLs of the control plane and the proxy, as browsers reach them."""

from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

from heliostat.config import ServerSettings
from heliostat.models.sessions import ProxyTarget

ENTRY_PATH = "_heliostat/enter"


@dataclass(frozen=True, slots=True)
class PublicUrls:
    control_url: str = "http://127.0.0.1:8470"
    proxy_url: str = "http://127.0.0.1:8471"  # with a star, each target has its own host name
    is_control_url_configured: bool = False  # in the settings; otherwise it follows the browser's host name
    is_proxy_url_configured: bool = False

    @property
    def has_host_per_target(self) -> bool:
        return "*" in self.proxy_url

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers reach the proxy by https."""
        return self.proxy_url.startswith("https://")

    def for_host(self, host: str) -> "PublicUrls":
        """The URLs for a browser that uses this host name; configured URLs stay."""
        name = urlsplit(f"//{host}").hostname or ""
        if not name:
            return self
        control = self.control_url if self.is_control_url_configured else _with_host(self.control_url, name)
        proxy = self.proxy_url if self.is_proxy_url_configured else _with_host(self.proxy_url, name)
        return replace(self, control_url=control, proxy_url=proxy)

    def target_url(self, target: ProxyTarget) -> str:
        return f"{self.proxy_url.replace('*', target.name)}{target.path_prefix}"

    def entry_url(self, target: ProxyTarget, code: str, goal: str) -> str:
        """Where the proxy accepts a login code and redirects to `goal`."""
        return f"{self.target_url(target)}{ENTRY_PATH}?code={quote(code, safe='')}&next={quote(goal, safe='')}"


def build_public_urls(server: ServerSettings, url: str, proxy_url: str) -> PublicUrls:
    """`url` and `proxy_url`: where the control plane and the proxy listen."""
    return PublicUrls(
        control_url=(server.public_url or url).rstrip("/"),
        proxy_url=(server.proxy_url or proxy_url).rstrip("/"),
        is_control_url_configured=server.public_url is not None,
        is_proxy_url_configured=server.proxy_url is not None,
    )


def _with_host(address: str, name: str) -> str:
    parts = urlsplit(address)
    host = f"[{name}]" if ":" in name else name
    return parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host).geturl()
