"""The notifier of a running server, made of its parts."""

from heliostat.notices.sending import Sender
from heliostat.services.context import Context
from heliostat.workers.lateness import Lateness
from heliostat.workers.notifier import Desk, Notifier


def make_notifier(context: Context) -> Notifier:
    settings = context.settings
    late = Lateness(context.store, context.forecaster.of, settings.notice_late_seconds, context.now)
    return Notifier(Desk(context.store, settings, Sender(settings).send, context.now, late.note))
