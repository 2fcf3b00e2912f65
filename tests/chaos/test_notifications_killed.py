"""KILL the server while jobs end and those who are told are away: each end is told."""

import random
import time
from collections.abc import Callable

import pytest

from support.notification_receivers import running_http_receiver, running_mail_receiver
from support.server_process import ServerProcess
from support.waiting import wait_until

JOBS, KILLS = 60, 4


@pytest.mark.timeout(900)
def test_no_end_is_left_untold_whatever_dies(serve: Callable[..., ServerProcess]) -> None:
    chance = random.Random(1)
    with running_mail_receiver() as mailbox, running_http_receiver(manner=500) as receiver:
        server = serve(
            notifications={
                "hosts": (receiver.host,),
                "networks": ("127.0.0.0/8",),
                "mail_domains": ("example.org",),
                "pause_seconds": 3,
                "smtp_host": "127.0.0.1",
                "smtp_port": mailbox.port,
                "smtp_tls": "none",
            },
            cpus=8,
        )
        server.client.notifications.add("webhook", receiver.url)
        server.client.notifications.add("email", "ada@example.org", [])
        ids = _run(server, JOBS // 2)
        wait_until(lambda: receiver.received, "the first is tried", 60)
        refused = receiver.received[0].json["id"]
        for _ in range(KILLS):
            ids += _run(server, JOBS // (2 * KILLS))
            time.sleep(chance.uniform(0.0, 0.7))  # the random moment itself
            server.kill()
            server.start()
        receiver.received.clear()
        receiver.behaviour = 200
        wait_until(lambda: _told(receiver.delivered) >= set(ids), "every end is told", 200)
        wait_until(lambda: _mailed(mailbox.mails) >= len(ids), "and mailed, in a few mails", 90)
        assert len(mailbox.mails) < len(ids) / 2
        assert refused in {one.json["id"] for one in receiver.delivered}, "every try has the same id"
        wait_until(lambda: server.client.notifications.list()[0]["problem"] is None, "all is well again", 60)


def _run(server: ServerProcess, count: int) -> list[int]:
    jobs = server.client.submit_many([{"command": "true", "cpus": 1, "memory": 64, "notify": "ended"}] * count)
    return [job.id for job in jobs]


def _told(received: list) -> set[int]:  # type: ignore[type-arg]
    return {event["job_id"] for one in received for event in one.json["events"]}


def _mailed(mails: list) -> int:  # type: ignore[type-arg]
    """By their subjects: `Job 3 completed (true)`, `12 notifications about jobs: 12 completed`."""
    return sum(1 if mail["Subject"].startswith("Job ") else int(mail["Subject"].split()[0]) for mail in mails)
