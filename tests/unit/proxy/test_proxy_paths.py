"""Which addresses lead where."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models.sessions import ProxyTarget, parse_proxy_target
from heliostat.proxy.paths import parse_path, parse_target_host
from heliostat.services.public_urls import PublicUrls


@pytest.mark.parametrize(
    ("path", "target", "at_home", "at_root"),
    [
        (b"/s/12/", ProxyTarget(12), b"/s/12/", b"/"),
        (b"/s/12-6006/a%2Fb", ProxyTarget(12, 6006), b"/s/12-6006/a%2Fb", b"/a%2Fb"),
        (b"/s/12/a//b", ProxyTarget(12), b"/s/12/a//b", b"/a//b"),
        (b"/s/12/...", ProxyTarget(12), b"/s/12/...", b"/..."),
    ],
)
def test_paths_are_passed_on_as_they_came(
    path: bytes, target: ProxyTarget, at_home: bytes, at_root: bytes
) -> None:
    asked = parse_path(path, b"")
    assert asked is not None
    assert asked.target == target
    assert (asked.upstream_path(True), asked.upstream_path(False)) == (at_home, at_root)
    with_query = parse_path(path, b"a=%2F&b")
    assert with_query is not None
    assert with_query.upstream_path(False) == at_root + b"?a=%2F&b"


@pytest.mark.parametrize(
    "path",
    [
        *(b"/", b"", b"/s", b"/s/", b"/s/X/", b"/s/0/", b"/s/012/", b"/s/12-0/", b"/s/12-70000/", b"/s/-1/"),
        *(b"/s/12/..", b"/s/12/../13/", b"/s/12/%2e%2e/", b"/s/12/%2E./x", b"/s/12/.%2e/x", b"/s/12/./x"),
        *(b"/s/12/%252e%252e/x", b"/s/12/..%5cx", b"/s/12/a b", b"/s/12/\\x", b"/s/12/\xff", b"/s/12/#x"),
        *(b"//s/12/", b"/s//12/", b"/S/12/", b"/s/12%2f", b"/s/9999999999999999/", b"/s/12-6006-1/"),
    ],
)
def test_what_is_no_plain_address_leads_nowhere(path: bytes) -> None:
    assert parse_path(path, b"") is None


@given(st.text(st.sampled_from("./%25eE\\abc2f"), max_size=20))
def test_no_path_that_a_server_may_read_as_climbing_is_passed_on(rest: str) -> None:
    asked = parse_path(f"/s/12/{rest}".encode(), b"")
    for reading in (rest, unquote(rest), unquote(unquote(rest))):
        if ".." in reading.replace("\\", "/").split("/"):
            assert asked is None


@given(st.integers(1, 10**15 - 1), st.none() | st.integers(1, 65535))
def test_each_target_has_one_name(job: int, port: int | None) -> None:
    target = ProxyTarget(job, port)
    assert parse_proxy_target(target.name) == target
    asked = parse_path(target.path_prefix.encode() + quote("ä b").encode(), b"")
    assert asked is not None
    assert asked.target == target


@pytest.mark.parametrize(
    ("host", "target"),
    [
        (b"12.sessions.example.org", ProxyTarget(12)),
        (b"12-6006.SESSIONS.example.org:8443", ProxyTarget(12, 6006)),
        (b"sessions.example.org", None),
        (b"x.12.sessions.example.org", None),
        (b"12.sessions.example.org.evil", None),
        (b"12sessions.example.org", None),
        (b"", None),
    ],
)
def test_a_host_name_stands_for_one_target(host: bytes, target: ProxyTarget | None) -> None:
    assert parse_target_host(host, "*.sessions.example.org:8443") == target


def test_browsers_are_sent_to_the_host_name_under_which_they_came() -> None:
    usual = PublicUrls("http://127.0.0.1:8470", "http://127.0.0.1:8471").for_host("gpu.lab:8470")
    assert (usual.control_url, usual.target_url(ProxyTarget(3))) == (
        "http://gpu.lab:8470",
        "http://gpu.lab:8471/s/3/",
    )
    six = PublicUrls("http://127.0.0.1:8470", "http://127.0.0.1:8471").for_host("[::1]:8470")
    assert six.proxy_url == "http://[::1]:8471"
    told = PublicUrls("https://gpu.lab", "https://*.s.lab", True, True).for_host("evil.example")
    assert (told.control_url, told.target_url(ProxyTarget(3, 6006))) == (
        "https://gpu.lab",
        "https://3-6006.s.lab/s/3-6006/",
    )
