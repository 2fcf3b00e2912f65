"""The page at the server's address. It holds no data and no script: it says what this is and what to type."""

from html import escape

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from heliostat import __version__

router = APIRouter(include_in_schema=False)
_CSP = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Heliostat</title>
<style>
html {{ color-scheme: light dark; }}
:root {{ --ink: #1d2733; --soft: #5b6b7b; --ground: #fbfaf7; --card: #fff; --sun: #c77700; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e8ecf0; --soft: #9fb0c0; --ground: #12181f; --card: #1b242e; --sun: #ffb83d; }}
}}
body {{ margin: 0; background: var(--ground); color: var(--ink); font: 1rem/1.6 system-ui, sans-serif; }}
main {{ max-width: 40rem; margin: 12vh auto; padding: 0 1.25rem; }}
h1 {{ font-size: 2rem; margin: 0; }}
h1 span {{ color: var(--sun); }}
pre {{ background: var(--card); padding: 1rem; border-radius: .5rem; overflow-x: auto; line-height: 1.8; }}
p, footer {{ color: var(--soft); }}
a {{ color: inherit; }}
</style>
<main>
<h1><span aria-hidden="true">☀</span> Heliostat</h1>
<p>One shared queue for this group's GPU servers. It is running.</p>
<pre>helio run --gpus 1 -- python train.py
helio ps
helio logs -f JOB</pre>
<p>From another machine, make a token on the server and point the command line here:</p>
<pre>helio token create --name laptop
export HELIOSTAT_URL={url} HELIOSTAT_TOKEN=…</pre>
<footer>Version {version} · <a href="/api/v1/openapi.json">API description</a></footer>
</main>
</html>
"""


@router.get("/")
def home(request: Request) -> Response:
    page = _PAGE.format(url=escape(str(request.base_url).rstrip("/")), version=__version__)
    headers = {
        "Content-Security-Policy": _CSP,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(page, headers=headers)
