"""A certificate authority of a test's own, and a certificate for `localhost` by it. Needs openssl."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CertificateAuthority:
    certificate_file: Path  # its own certificate: who trusts this trusts `server`
    server_context: ssl.SSLContext


def certificates_skip_reason() -> str | None:
    return None if shutil.which("openssl") else "needs openssl, to make certificates"


def create_certificate_authority(folder: Path) -> CertificateAuthority:
    ca, ca_key, key, request, certificate = (
        folder / name for name in ("ca.pem", "ca.key", "server.key", "server.csr", "server.pem")
    )
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-batch")
    as_authority = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(*new, "-x509", "-days", "2", "-subj", "/CN=Test", *as_authority, "-keyout", ca_key, "-out", ca)
    _openssl(*new, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    names = folder / "names"
    names.write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    by_ca = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", names)
    _openssl("x509", "-req", "-in", request, *by_ca, "-out", certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return CertificateAuthority(ca, server)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=120)
