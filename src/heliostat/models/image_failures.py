"""Explains why an image could not be fetched, pushed or verified."""

PUSH_FAILURE_PREFIX = "the image cannot be pushed: "
FETCH_FAILURE_PREFIX = "cannot be fetched: "
_KEYS_HINT = "Admins configure the trusted keys in /etc/containers/policy.json."
_SIGNATURE_REFUSALS = (  # text of the tool, explanation
    (
        "no signature exists",
        "it is not signed, and this node accepts only images signed with a trusted key. "
        f"Its author can sign it: podman push --sign-by KEY. {_KEYS_HINT}",
    ),
    (
        "invalid gpg signature",
        f"it is not signed with a key that this node trusts. Choose a signed image. {_KEYS_HINT}",
    ),
    (
        "source image rejected: signature for",
        "its signature is for another image or another name. Sign it under the name by which it is fetched: "
        "podman push --sign-by KEY.",
    ),
    (
        "is rejected by policy",
        "the node's signature policy refuses all images from there. Choose another image, or ask an admin.",
    ),
)
_POLICY_MARKS = ("source image rejected", "policy.json")
_UNREACHABLE_MARKS = (
    "connection refused",
    "no such host",
    "i/o timeout",
    "no route to host",
    "network is unreachable",
)
_LOGIN_MARKS = (
    "unauthorized",
    "authentication required",
    "denied",
    "403 (forbidden)",
    "invalid username/password",
)
_NOT_FOUND_MARKS = ("manifest unknown", "name unknown", "not found")
_CORRUPT_MARKS = ("did not match", "unexpected eof")


def explain_push_failure(output: str) -> str:
    """Why a push failed, from the output of the tool."""
    lower = output.lower()
    if any(mark in lower for mark in _UNREACHABLE_MARKS):
        return f"{PUSH_FAILURE_PREFIX}the registry does not respond. {_last_line(output)}"
    if any(mark in lower for mark in _LOGIN_MARKS):
        return f"{PUSH_FAILURE_PREFIX}the registry refused the login or the push. {_last_line(output)}"
    return f"{PUSH_FAILURE_PREFIX}{_last_line(output) or 'the tool printed no message'}"


def explain_fetch_failure(image: str, output: str) -> str:
    """Why an image could not be fetched, and what to do, from the output of the tool."""
    lower, why = output.lower(), f"{image} {FETCH_FAILURE_PREFIX}"
    registry = image.partition("/")[0]
    if refusal := explain_signature_refusal(output):
        return f"{why}{refusal}"
    if any(mark in lower for mark in _UNREACHABLE_MARKS):
        return f"{why}the registry does not respond. {_last_line(output)}"
    if any(mark in lower for mark in _LOGIN_MARKS):
        login = f"podman login --authfile ~/.docker/config.json {registry}"
        return (
            f"{why}the registry requires a login, or the image does not exist. Check the name, or log in: {login}"
        )
    if any(mark in lower for mark in _NOT_FOUND_MARKS):
        return f"{why}the image does not exist in the registry. Check its name and tag."
    if any(mark in lower for mark in _CORRUPT_MARKS):
        problem = f"the downloaded data is corrupt. Push it again, or contact the admins of {registry}."
        return f"{why}{problem} {_last_line(output)}"
    return f"{why}{_last_line(output) or 'the tool printed no message'}"


def explain_signature_refusal(output: str) -> str | None:
    """Why the node's signature policy refuses an image, and what to do; None: it does not."""
    lower = output.lower()
    if text := next((text for mark, text in _SIGNATURE_REFUSALS if mark in lower), None):
        return text
    if not any(mark in lower for mark in _POLICY_MARKS):
        return None
    problem = "the node's signature policy is invalid; contact an admin"
    return f"{problem}: /etc/containers/policy.json. {_last_line(output)}"


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
