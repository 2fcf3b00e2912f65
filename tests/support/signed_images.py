"""A node whose rules demand signed images: real keys, a real registry, and rules of its own that only it sees."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.container_images import TEST_IMAGE, import_test_image

TRUSTED_KEY, UNTRUSTED_KEY = "lab@example.org", "stranger@example.org"


def signatures_skip_reason() -> str | None:
    missing = [name for name in ("gpg", "gpgconf", "docker-registry", "unshare") if shutil.which(name) is None]
    return f"needs {', '.join(missing)}: scripts/install-test-parts" if missing else None


class SigningNode:
    """Its `/etc/containers` is a copy, laid over the machine's own in a mount namespace: nobody else sees it."""

    def __init__(self, folder: Path, registry: str) -> None:
        self.folder, self.registry = folder, registry
        self.containers_config, self.signatures = folder / "containers", folder / "signatures"
        self._keys, self._images = folder / "keys", folder / "images"
        shutil.copytree("/etc/containers", self.containers_config, symlinks=True)
        for made in (self.containers_config / "registries.d", self.signatures, self._images):
            made.mkdir(exist_ok=True)
        self._keys.mkdir(mode=0o700)
        for key in (TRUSTED_KEY, UNTRUSTED_KEY):
            self._gpg("--quick-generate-key", key, "ed25519", "sign", "never")
        self.key = folder / "lab.gpg"
        self.key.write_bytes(self._gpg("--export", TRUSTED_KEY))
        self._write_rules()
        import_test_image(folder, "root")

    @property
    def python(self) -> str:
        """Starts a server on this node."""
        program = self.folder / "python"
        inside = f'mount --bind {self.containers_config} /etc/containers && exec {sys.executable} "$@"'
        program.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{inside}' sh \"$@\"\n")
        program.chmod(0o755)
        return str(program)

    def push(self, name: str, key: str | None, what: str = "the-image") -> str:
        """A busybox under this name, signed with that key; its name in full."""
        import_test_image(self.folder, "root", what=what)
        image = f"{self.registry}/{name}"
        signed = [] if key is None else ["--sign-by", key]
        self._podman("push", "--quiet", "--tls-verify=false", *signed, TEST_IMAGE, f"docker://{image}")
        return image

    def signature_path(self, name: str) -> Path:
        """Where the one of this repository lies, which has one image."""
        [found] = self.signatures.glob(f"{name}@*")
        return found

    def close(self) -> None:
        """Ends the agent that holds the keys."""
        subprocess.run(["gpgconf", "--homedir", self._keys, "--kill", "all"], check=True, capture_output=True)

    def _write_rules(self) -> None:
        place = f"file://{self.signatures}"
        where = {self.registry: {"lookaside": place, "lookaside-staging": place}}
        (self.containers_config / "registries.d/lab.yaml").write_text(json.dumps({"docker": where}))
        signed = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": str(self.key)}
        of_here = {"": [{"type": "insecureAcceptAnything"}]}  # what was built here, as the docs say
        from_where = {"docker": {self.registry: [signed]}, "containers-storage": of_here, "oci-archive": of_here}
        rules = {"default": [{"type": "reject"}], "transports": from_where}
        (self.containers_config / "policy.json").write_text(json.dumps(rules))

    def _gpg(self, *words: str) -> bytes:
        alone = ["gpg", "--homedir", str(self._keys), "--batch", "--passphrase", "", "--pinentry-mode", "loopback"]
        return subprocess.run([*alone, *words], check=True, capture_output=True).stdout

    def _podman(self, *words: str) -> None:
        store = self.folder / "images/root"
        shutil.rmtree(store / "libpod", ignore_errors=True)
        places = [f"--root={store}", f"--runroot={self.folder}/r/c", f"--tmpdir={self.folder}/r/t"]
        inside = f'mount --bind {self.containers_config} /etc/containers && exec podman "$@"'
        command = ["unshare", "--mount", "sh", "-c", inside, "sh", *places, "--storage-driver=overlay", *words]
        keys = {**os.environ, "GNUPGHOME": str(self._keys)}
        done = subprocess.run(command, env=keys, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
