"""The effective settings of the server."""

from heliostat.config import effective_settings
from heliostat.models import Caller
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin


def list_effective_settings(context: Context, caller: Caller) -> list[effective_settings.EffectiveSetting]:
    """In the order of the sections. Values that may be secrets are hidden."""
    require_admin(caller.user)
    return effective_settings.effective_settings(context.settings)
