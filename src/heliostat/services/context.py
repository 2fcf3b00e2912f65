"""The running parts that services act upon."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from heliostat.auth.identity import Identities
from heliostat.config import Settings
from heliostat.controller.accounts import Rules
from heliostat.controller.controller import Controller
from heliostat.controller.fleet import Fleet
from heliostat.controller.forecaster import Forecaster
from heliostat.engines.contract import Engine
from heliostat.engines.relay.relays import Relays
from heliostat.services.addresses import Addresses
from heliostat.services.recent import Recent
from heliostat.services.traffic import Traffic
from heliostat.services.turns import Turns
from heliostat.store.database import Store
from heliostat.store.samples import SampleStore
from heliostat.store.uploads import Uploads


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Context:
    settings: Settings
    store: Store
    engine: Engine
    fleet: Fleet
    controller: Controller
    identities: Identities
    rules: Rules
    forecaster: Forecaster
    samples: SampleStore
    uploads: Uploads
    recent: Recent = field(default_factory=Recent)
    imports: Turns = field(default_factory=lambda: Turns("file"))
    searches: Turns = field(default_factory=lambda: Turns("search"))
    uploading: Turns = field(default_factory=lambda: Turns("upload", most=1000))
    notebooks: Turns = field(default_factory=lambda: Turns("notebook"))
    now: Callable[[], datetime] = field(default=utc_now)
    traffic: Traffic = field(default_factory=Traffic)
    addresses: Addresses = field(default_factory=Addresses)
    relays: Relays | None = None  # to ports of jobs on other machines
