"""The files in deploy/ are accepted by the programs that read them."""

import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    found = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin")
    if found is None:
        pytest.skip(f"{program} is not installed: scripts/install-test-parts installs it")
    words = [found, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    done = run(
        "openssl", *("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -out".split()), cert, "-keyout", key
    )
    assert done.returncode == 0, done.stderr
    return cert, key


def with_certificate(text: str, certificate: tuple[Path, Path]) -> str:
    cert, key = map(str, certificate)
    for name in ("gpu", "sessions"):
        text = text.replace(f"/etc/ssl/heliostat/{name}.pem", cert).replace(f"/etc/ssl/heliostat/{name}.key", key)
    return text


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "heliostat.service"
    unit.write_text(
        (DEPLOY / "heliostat.service").read_text().replace("/opt/heliostat/.venv/bin/helio", "/bin/true")
    )
    done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
    assert done.returncode == 0, done.stderr
    assert "heliostat.service" not in done.stderr


def test_logrotate_accepts_its_file_and_keeps_what_is_appended_later(tmp_path: Path) -> None:
    log, rules = tmp_path / "server.log", tmp_path / "rules"
    rules.write_text(
        (DEPLOY / "heliostat.logrotate").read_text().replace("/var/lib/heliostat/server.log", str(log))
    )
    with log.open("ab") as server:
        server.write(b"before\n")
        server.flush()
        done = run("logrotate", "--force", "--state", tmp_path / "state", rules)
        assert done.returncode == 0, done.stderr
        server.write(b"after\n")
    assert log.read_bytes() == b"after\n"
    assert (tmp_path / "server.log.1").read_bytes() == b"before\n"


def test_nginx_accepts_its_file(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    site = with_certificate((DEPLOY / "nginx.conf").read_text(), certificate)
    folders = " ".join(
        f"{kind}_temp_path {tmp_path};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = tmp_path / "nginx.conf"
    whole.write_text(f"pid {tmp_path}/pid; events {{}} http {{ access_log off; {folders} {site} }}")
    done = run("nginx", "-t", "-e", "stderr", "-c", whole)
    assert done.returncode == 0, done.stderr


def test_caddy_accepts_its_file(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    caddyfile = tmp_path / "Caddyfile"
    caddyfile.write_text(with_certificate((DEPLOY / "Caddyfile").read_text(), certificate))
    done = run("caddy", "validate", "--adapter", "caddyfile", "--config", caddyfile)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_pages_and_sessions_have_different_host_names(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert text.index("127.0.0.1:8470") < text.index("*.sessions.example.org", text.index("127.0.0.1:8470"))
    assert "127.0.0.1:8471" in text
