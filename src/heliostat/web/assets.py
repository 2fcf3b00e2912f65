"""Static files: style sheets, scripts and images, cached in memory under a URL with a content digest."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from heliostat.errors import NotFound

router = APIRouter(include_in_schema=False)
_FOLDER = Path(__file__).with_name("static")
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}
_CACHE_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class _Asset:
    media_type: str
    data: bytes
    gzipped: bytes


@dataclass(frozen=True, slots=True)
class _Assets:
    digest: str
    files: dict[str, _Asset]


def asset_url(name: str) -> str:
    """All files share one digest, so that scripts can import each other by relative names."""
    assets = _assets()
    if name not in assets.files:
        raise LookupError(f"there is no static file {name}")
    return f"/static/{assets.digest}/{name}"


@router.get("/static/{digest}/{name:path}")
async def serve_asset(digest: str, name: str, request: Request) -> Response:
    assets = _assets()
    asset = assets.files.get(name)
    if asset is None:
        raise NotFound(f"There is no file {name[:80]}.", "Reload the page.")
    is_gzipped = "gzip" in request.headers.get("accept-encoding", "")
    headers = {
        "Cache-Control": _CACHE_FOREVER if digest == assets.digest else "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Vary": "Accept-Encoding",
    }
    if is_gzipped:
        headers["Content-Encoding"] = "gzip"
    return Response(asset.gzipped if is_gzipped else asset.data, media_type=asset.media_type, headers=headers)


@cache
def _assets() -> _Assets:
    paths = sorted(path for path in _FOLDER.rglob("*") if path.suffix in _MEDIA_TYPES)
    files = {str(path.relative_to(_FOLDER)): path for path in paths}
    digest = hashlib.sha256()
    assets: dict[str, _Asset] = {}
    for name, path in files.items():
        data = path.read_bytes()
        digest.update(name.encode() + b"\0" + data)
        assets[name] = _Asset(_MEDIA_TYPES[path.suffix], data, gzip.compress(data, mtime=0))
    return _Assets(digest.hexdigest()[:12], assets)
