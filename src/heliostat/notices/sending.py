"""One delivery on its way, by whichever channel."""

from dataclasses import dataclass
from datetime import datetime

from heliostat.config import Home, NotificationSettings
from heliostat.models.notices import Channel, Notice
from heliostat.notices.letters import Letter, chat_body
from heliostat.notices.mail import send_mail
from heliostat.notices.post import post
from heliostat.notices.signing import secret_of, signature


@dataclass(frozen=True, slots=True)
class Sender:
    """Says what was sent to whom; raises Undelivered."""

    home: Home
    notifications: NotificationSettings

    def send(self, notice: Notice, letter: Letter, at: datetime) -> None:
        if notice.channel is Channel.EMAIL:
            send_mail(self.notifications, notice.address, letter, at)
            return
        body = letter.body if notice.channel is Channel.WEBHOOK else chat_body(letter)
        headers = {"Content-Type": "application/json", "Heliostat-Delivery": letter.id}
        if notice.channel is Channel.WEBHOOK:
            seconds = int(at.timestamp())
            secret = secret_of(self.home.notice_key, notice.salt)
            headers |= {
                "Heliostat-Timestamp": str(seconds),
                "Heliostat-Signature": signature(secret, seconds, body),
            }
        post(self.notifications, notice.address, body, headers)
