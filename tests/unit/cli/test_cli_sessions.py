"""`helio notebook`: what it prints of a session that is up."""

from unit.client.stand_in_server import answer

SESSION = {"id": 7, "state": "running", "is_up": True, "url": "http://127.0.0.1:8000/s/7/", "log_tail": None}
WRONG_SCOPE = {"error": {"code": "forbidden", "message": "This token has the scope submit.", "hint": None}}


def test_a_token_that_may_not_log_in_a_browser_still_starts_a_session(helio, serve):
    serve(answer(SESSION, 201), answer(SESSION), answer(WRONG_SCOPE, 403))
    ran = helio("notebook")
    assert (ran.code, ran.out) == (0, f"{SESSION['url']}\n")
    assert "It asks for a login" in ran.err
