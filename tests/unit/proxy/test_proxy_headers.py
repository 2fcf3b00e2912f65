"""What the proxy passes on, and what never."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.proxy.headers import (
    ForwardingContext,
    Header,
    cookie_value,
    filter_request_headers,
    filter_response_headers,
)

SESSION = ForwardingContext(b"/s/12/", True, b"http", b"gpu:8471", b"10.0.0.9", b"token s3cret")
PORT = ForwardingContext(b"/s/12-6006/", False, b"https", b"gpu", b"10.0.0.9")
NAMES = st.sampled_from(
    [
        *(b"accept", b"x-a", b"cookie", b"connection", b"te", b"upgrade", b"authorization", b"transfer-encoding"),
        *(b"x-forwarded-for", b"x-heliostat-user", b"forwarded", b"content-length", b"origin", b"set-cookie"),
    ]
)
VALUES = st.sampled_from(
    [
        b"x-a",
        b"a=1; helio_session=s",
        b"HELIO_PROXY=x; b=2",
        b"keep-alive, x-a",
        b"; ;",
        b"=",
        b"a=1; Path=/; Domain=x",
    ]
)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=12)


@given(HEADERS)
def test_nothing_of_ours_and_nothing_of_the_connection_reaches_the_server_inside(headers: list[Header]) -> None:
    passed = filter_request_headers(headers, PORT)
    names = [name for name, _ in passed]
    assert not {b"connection", b"te", b"upgrade", b"transfer-encoding", b"authorization", b"forwarded"} & set(
        names
    )
    assert b"helio" not in b"".join(value for name, value in passed if name == b"cookie").lower()
    assert names.count(b"x-forwarded-for") == 1
    assert not any(name.startswith(b"x-heliostat-") for name in names)


@given(HEADERS)
def test_what_is_passed_on_keeps_its_order_and_its_repetitions(headers: list[Header]) -> None:
    named = b",".join(value for name, value in headers if name == b"connection")
    for name in (b"accept", b"origin", b"content-length"):
        if name not in named:
            wanted = [value for key, value in headers if key == name]
            assert [value for key, value in filter_request_headers(headers, SESSION) if key == name] == wanted


@pytest.mark.parametrize("name", [b"content-length", b"host", b"content-type", b"origin"])
def test_nobody_has_dropped_what_says_where_a_request_ends_or_goes(name: bytes) -> None:
    sent = [(b"connection", b"close, X-Gone , " + name.title()), (name, b"25"), (b"x-gone", b"1")]
    for passed in (filter_request_headers(sent, PORT), filter_response_headers(sent, PORT)):
        assert (name, b"25") in passed
        assert b"x-gone" not in dict(passed)


@given(HEADERS)
def test_no_cookie_of_a_server_inside_reaches_beyond_its_own_paths(headers: list[Header]) -> None:
    for name, value in filter_response_headers(headers, SESSION):
        if name == b"set-cookie":
            assert value.endswith(b"; Path=/s/12/")
            assert b"domain" not in value.lower()
            assert not value.lower().startswith((b"helio_", b"__host-helio_"))


def test_the_server_inside_gets_its_own_secret_and_the_browsers_host_and_origin() -> None:
    sent = [(b"host", b"gpu:8471"), (b"origin", b"http://gpu:8471"), (b"authorization", b"Bearer ours")]
    assert filter_request_headers(sent, SESSION) == [
        (b"host", b"gpu:8471"),
        (b"origin", b"http://gpu:8471"),
        (b"authorization", b"token s3cret"),
        (b"x-forwarded-for", b"10.0.0.9"),
        (b"x-forwarded-host", b"gpu:8471"),
        (b"x-forwarded-proto", b"http"),
    ]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"/login", b"/s/12-6006/login"),
        (b"/s/12-6006/x", b"/s/12-6006/x"),
        (b"next", b"next"),
        (b"https://gpu/a?b", b"/s/12-6006/a?b"),
        (b"https://gpu", b"/s/12-6006/"),
        (b"https://gpu.example/a", b"https://gpu.example/a"),
        (b"//evil/a", b"//evil/a"),
    ],
)
def test_redirects_of_a_server_that_sees_itself_at_the_root_stay_inside(said: bytes, told: bytes) -> None:
    assert dict(filter_response_headers([(b"location", said)], PORT))[b"location"] == told
    if b"gpu" not in said:
        assert dict(filter_response_headers([(b"location", said)], SESSION))[b"location"] == said


@pytest.mark.parametrize(
    ("cookie", "kept"),
    [
        (b"a=1", b"a=1; Path=/s/12-6006/"),
        (b"a=1; path=/deep; Secure; SameSite=None", b"a=1; Secure; SameSite=None; Path=/s/12-6006/deep"),
        (b"a=1; Path=/s/12-6006/x", b"a=1; Path=/s/12-6006/x"),
        (b"a=1; Path=/s/12-60060/", b"a=1; Path=/s/12-6006/s/12-60060/"),
        (b"helio_proxy=1", None),
        (b" Helio_nonce=1; Path=/", None),
        (b"__Secure-helio_proxy=1", None),
    ],
)
def test_cookies_are_confined(cookie: bytes, kept: bytes | None) -> None:
    answer = filter_response_headers([(b"set-cookie", cookie)], PORT)
    assert [value for name, value in answer if name == b"set-cookie"] == ([] if kept is None else [kept])


def test_of_two_cookies_with_one_name_the_nearest_counts() -> None:
    headers = [(b"cookie", b"helio_proxy=deep; x=1"), (b"cookie", b'helio_proxy="wide"')]
    assert cookie_value(headers, b"helio_proxy") == b"deep"
    assert cookie_value(headers, b"proxy") == b""
