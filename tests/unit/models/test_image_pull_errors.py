"""Why an image did not come: the words of podman in ours."""

import pytest

from heliostat.models.image_failures import explain_fetch_failure, explain_signature_refusal

IMAGE = "registry.example.org/lab/torch:2"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Error: Source image rejected: A signature was required, but no signature exists", "is not signed"),
        (
            "Error: Source image rejected: Invalid GPG signature: gpgme.Signature{Summary:128}",
            "a key that this node trusts",
        ),
        ("Error: Source image rejected: Signature for identity a/b:1 is not accepted", "for another image"),
        ("Error: Source image rejected: Running image docker://x is rejected by policy.", "refuses all images"),
        ("Error: Source image rejected: open /etc/lab.gpg: permission denied", "contact an admin"),
        ('Error: invalid policy in "/etc/containers/policy.json": x', "contact an admin"),
        ("Error: initializing source docker://x: dial tcp: connect: connection refused", "does not respond"),
        ("Error: reading manifest 2 in x: unauthorized: authentication required", "podman login --authfile"),
        ("Error: reading manifest 2 in x: manifest unknown: manifest unknown", "Check its name and tag"),
        (
            "Error: writing blob: Digest did not match, expected sha256:0, got sha256:1",
            "downloaded data is corrupt",
        ),
        ("Warning\nError: something new", "something new"),
        ("", "printed no message"),
    ],
)
def test_the_cause_and_the_next_step_are_told(said: str, told: str) -> None:
    words = explain_fetch_failure(IMAGE, said)
    assert words.startswith(f"{IMAGE} cannot be fetched: ")
    assert told in words
    assert "gpgme" not in words


def test_what_no_rule_refuses_is_told_by_others() -> None:
    assert explain_signature_refusal("Error: building at STEP RUN make: exit status 2") is None
