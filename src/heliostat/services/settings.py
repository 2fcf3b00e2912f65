"""What is set, as the server has read it."""

from heliostat.config import show
from heliostat.models import Caller
from heliostat.services.context import Context
from heliostat.services.rights import require_admin


def effective_settings(context: Context, caller: Caller) -> list[show.EffectiveSetting]:
    """In the order of the sections. What could be a secret is only said to be there."""
    require_admin(caller.user)
    return show.effective_settings(context.settings)
