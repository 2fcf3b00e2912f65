"""The server process: starts all components and serves HTTP until SIGTERM. Jobs outlive it."""

import contextlib
import fcntl
import functools
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TextIO

import uvicorn

from heliostat import __version__
from heliostat.api.app import create_app
from heliostat.auth.authentication import Authenticator
from heliostat.config import Home, MonitoringSettings, ServerSettings, Settings
from heliostat.config.file_system import check_database_folder
from heliostat.config.load import list_changed_settings
from heliostat.config.pause_file import Pause, find_pause, pause
from heliostat.config.sections import split_address
from heliostat.controller.controller import Controller, ControllerComponents, Resumption
from heliostat.controller.forecaster import Forecaster
from heliostat.controller.node_inventory import NodeInventory
from heliostat.controller.shares_and_quotas import SchedulingRules
from heliostat.engines.contract import CleansUpImages, Engine, SyncsAccounts, WatchesGpus
from heliostat.engines.factory import make_engine
from heliostat.engines.helio_in_jobs import install_job_programs
from heliostat.errors import Conflict, HeliostatError
from heliostat.http_protocol import (
    ConnectionLimiter,
    ConnectionLimits,
    LimitedHttpProtocol,
    peer_uid,
)
from heliostat.loops.area_space import AreaSpaceReader
from heliostat.loops.backup_maker import BackupMaker
from heliostat.loops.environment_cleanup import EnvironmentCleaner
from heliostat.loops.file_cleanup import JobFolderCleaner, UploadCleaner, WorkflowFileCleaner
from heliostat.loops.gpu_history import GpuHistoryRecorder
from heliostat.loops.gpu_metrics import GpuMetricsReader
from heliostat.loops.idle_gpus import IdleGpuMonitor
from heliostat.loops.image_cleanup import ImageCleaner
from heliostat.loops.notifier import make_notifier
from heliostat.loops.provenance_recorder import ProvenanceRecorder, ProvenanceSources
from heliostat.loops.sampler import EngineUsageRecorder, Sampler, SamplerSources
from heliostat.loops.schedule_loop import ScheduleLoop
from heliostat.loops.services_and_sessions import ServiceReconciler, SessionMonitor
from heliostat.loops.slurm_accounts import SlurmAccountUpdater
from heliostat.missing_database import highest_job_id, require_database_of_jobs
from heliostat.open_files import raise_open_files_limit
from heliostat.payloads.archive import build_zipapp
from heliostat.proxy.proxy_server import ProxyServer, open_proxy_listener
from heliostat.scheduling_settings import policy_from_settings
from heliostat.server_log import configure_logging, get_logger
from heliostat.services.context import Context, utc_now
from heliostat.services.pause import find_unknown_jobs, read_left_attempts
from heliostat.services.pause_state import PauseState
from heliostat.services.public_urls import build_public_urls
from heliostat.store.database import Store
from heliostat.store.job_writes import remove_old_idempotency_keys
from heliostat.store.samples import SampleRetention, SampleStore
from heliostat.store.schema_upgrade import migrate
from heliostat.store.uploads import UploadStore

log = get_logger()
_LOCK_SECONDS = 5.0
_IDEMPOTENCY_KEY_LIFETIME = timedelta(days=30)  # how long a repeated submission is recognised


def serve(
    settings: Settings,
    engine: Engine | None = None,
    *,
    before: Callable[[Store], None] = lambda store: None,
    ready: Callable[[Context, str], None] = lambda context, url: None,
) -> None:
    """Run until SIGTERM or SIGINT. `before` may fill the store; `ready` is called with the address.

    On SIGHUP the process starts again with the settings as they are now; jobs go on.
    """
    os.umask(0o077)
    sys.setswitchinterval(0.001)  # threads exchange small messages constantly
    configure_logging(settings.server.log_format)
    _reset_ignored_signals()
    _close_descriptors_on_exec()
    open_files = raise_open_files_limit()
    _make_home(settings.home)
    build_zipapp()  # now: an upgrade may replace the installed files while the server runs
    with _lock(settings.home), contextlib.ExitStack() as stack:
        if settings.home.database_folder:
            stack.enter_context(_lock_file(settings.home.database_lock_file, _LOCK_SECONDS))
        sockets = [_tcp_socket(settings.server), _unix_socket(settings.home)]
        metrics_socket = _metrics_socket(settings.monitoring)
        url, proxy_socket = _url(sockets[0]), open_proxy_listener(settings.server, sockets[0])
        settings.home.rename_old_files()
        if cause := check_database_folder(settings.home):
            log.warning("database_on_shared_file_system", cause=cause, hint="helio doctor")
        require_database_of_jobs(settings.home)
        install_job_programs(settings.home)
        migrate(settings.home.database)
        context = _start_components(settings, engine or make_engine(settings), before, stack)
        public_urls = build_public_urls(settings.server, url, _url(proxy_socket))
        context = replace(context, public_urls=public_urls)
        _start_loops(context, stack)
        facts = {
            "pid": os.getpid(),
            "url": url,
            "proxy_url": context.public_urls.proxy_url,
            "metrics_url": f"{_url(metrics_socket)}/metrics" if metrics_socket else None,
            "home": str(settings.home.path),
            "started_at": utc_now().isoformat(),
        }
        app = create_app(context, facts)
        status = {
            **facts,
            "version": __version__,
            "engine": context.engine.name,
            "options": settings.command_line_options,
        }
        _write_status(settings.home, status)
        stack.callback(settings.home.status_file.unlink, missing_ok=True)
        stack.callback(settings.home.socket.unlink, missing_ok=True)
        limits = ConnectionLimits.for_open_files(open_files, settings.server.max_connections_per_client)
        limiter = ConnectionLimiter(limits, settings.server.trusted_proxies)
        proxy = ProxyServer(context, proxy_socket, limiter)
        proxy.start()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()  # the command that started the server may have disabled it
        gc.freeze()  # objects that exist now live until the end: they need not be scanned again
        stack.callback(proxy.close)
        ready(context, url)
        log.info("serving", url=url, home=str(settings.home.path), engine=context.engine.name)
        restart = _run_http(app, _Listeners(sockets[0], sockets[1], metrics_socket), settings, limiter)
    log.info("restarting" if restart else "stopped")
    if restart:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - its own command line


def _reset_ignored_signals() -> None:
    """A server started in the background inherits ignored signals, and so would its jobs. A handler that does
    nothing is not inherited."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def _close_descriptors_on_exec() -> None:
    """Jobs must not inherit files that the parent process left open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
                os.set_inheritable(int(name), False)


def _start_components(
    settings: Settings, engine: Engine, before: Callable[[Store], None], stack: contextlib.ExitStack
) -> Context:
    store = Store(settings.home.database)
    stack.callback(store.close)
    store.reserve_job_ids(highest_job_id(settings.home.jobs))
    stack.callback(engine.close)
    store.write(lambda tx: remove_old_idempotency_keys(tx, utc_now() - _IDEMPOTENCY_KEY_LIFETIME))
    before(store)
    nodes, rules = NodeInventory(engine, store), SchedulingRules(store)
    controller = Controller(
        ControllerComponents(store, engine, nodes, rules, settings), utc_now, policy_from_settings(settings.queue)
    )
    authenticator = Authenticator(store, settings.auth, utc_now)
    stack.callback(authenticator.close)
    authenticator.authenticate_peer(os.geteuid())  # the user who starts Heliostat is its first admin
    paused = _find_pause(settings.home, store, engine)
    controller.start(None if paused else Resumption(left_running=read_left_attempts(settings.home)))
    stack.callback(controller.close)
    forecaster = Forecaster(store, controller, utc_now, engine=engine)
    forecaster.start()
    stack.callback(forecaster.close)
    retention = SampleRetention(
        settings.monitoring.keep_samples_days,
        settings.monitoring.keep_five_minute_days,
        settings.monitoring.keep_hourly_days,
    )
    samples = SampleStore(settings.home.samples, settings.monitoring.sample_seconds, retention)
    stack.callback(samples.close)
    uploads = UploadStore(settings.home.uploads)
    return Context(
        *(settings, store, engine, nodes, controller, authenticator, rules, forecaster, samples, uploads),
        pause=PauseState(paused),
    )


def _find_pause(home: Home, store: Store, engine: Engine) -> Pause | None:
    """Jobs that the database does not know are not stopped unasked: an admin decides."""
    if (current := find_pause(home)) is None and find_unknown_jobs(home, store, engine):
        current = pause(home, "jobs run that the database does not know")
    if current:
        log.warning("paused", reason=current.reason, hint="helio resume")
    return current


class _BackgroundLoop(Protocol):
    def start(self) -> None: ...

    def close(self) -> None: ...


def _start_loops(context: Context, stack: contextlib.ExitStack) -> None:
    """Starts the background loops, after all other components; if it is paused, when it is resumed."""
    context.store.on_commit(context.traffic.on_commit)
    loops = list(_loops(context))
    for loop in loops:
        stack.callback(loop.close)

    def start() -> None:
        for loop in loops:
            loop.start()

    context.pause.start_loops = start
    if context.pause.current is None:
        start()


def _gpu_metrics_reader(context: Context) -> GpuMetricsReader | None:
    settings = context.settings.monitoring
    if settings.prometheus_url is None or context.engine.capabilities.samples_attempts:
        return None
    return GpuMetricsReader(settings.prometheus_url, settings.sample_seconds)


def _loops(context: Context) -> Iterator[_BackgroundLoop]:
    settings, store = context.settings, context.store
    home, days = settings.home, settings.storage.keep_job_folders_days
    if settings.storage.keep_records:
        yield ProvenanceRecorder(
            ProvenanceSources(store, context.engine, context.node_inventory), settings.containers, utc_now
        )
    if settings.monitoring.sample_seconds:
        gpu_metrics = _gpu_metrics_reader(context)
        if gpu_metrics is not None:
            yield gpu_metrics
        sources = SamplerSources(context.engine, context.node_inventory, context.controller, gpu_metrics)
        yield Sampler(sources, context.samples, utc_now)
    if isinstance(context.engine, WatchesGpus):
        yield GpuHistoryRecorder(context)
    yield JobFolderCleaner(store, home.jobs, days, utc_now)
    yield WorkflowFileCleaner(store, home.workflows, days, utc_now)
    yield UploadCleaner(store, context.uploads, settings.storage.keep_uploads_days, utc_now)
    yield EnvironmentCleaner(store, context.engine, home, settings.environments, utc_now)
    if isinstance(context.engine, CleansUpImages):
        yield ImageCleaner(context.engine.start_image_cleanups)
    if isinstance(context.engine, SyncsAccounts) and settings.slurm.apply_accounts:
        yield SlurmAccountUpdater(context)
    yield BackupMaker(home, settings.backup)
    yield AreaSpaceReader(home, context.monitoring)
    yield EngineUsageRecorder(context.engine, store)
    yield ScheduleLoop(context)
    yield make_notifier(context)
    yield ServiceReconciler(context)
    yield SessionMonitor(context)
    if settings.monitoring.sample_seconds:
        yield IdleGpuMonitor(context)


def _make_home(home: Home) -> None:
    """Users can enter the folders to reach their own jobs' files, but cannot list them."""
    try:
        for folder, mode in (
            (home.path, 0o711),
            (home.jobs, 0o711),
            (home.attempts, 0o700),
            (home.uploads, 0o700),
        ):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        home.database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise HeliostatError(
            f"The data directory {home.path} cannot be used: {error.strerror}.",
            "Set HELIOSTAT_HOME to a folder that you can write to.",
            code="bad_home",
        ) from error


def _lock(home: Home, wait_seconds: float = _LOCK_SECONDS) -> contextlib.AbstractContextManager[None]:
    return _lock_file(home.lock_file, wait_seconds)


@contextlib.contextmanager
def _lock_file(path: Path, wait_seconds: float) -> Iterator[None]:
    """Waits a moment: a child that a killed server had just forked holds the lock until it calls exec."""
    deadline = time.monotonic() + wait_seconds
    with open(path, "a", encoding="utf-8") as file:
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise Conflict(
                    f"Heliostat is already running on {path.parent}.",
                    "`helio status` shows it, `helio down` stops it.",
                )
            time.sleep(0.02)
        yield


def _try_lock(file: TextIO) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@dataclass(frozen=True, slots=True)
class _Listeners:
    api: socket.socket
    unix: socket.socket
    metrics: socket.socket | None

    @property
    def sockets(self) -> list[socket.socket]:
        return [listener for listener in (self.api, self.unix, self.metrics) if listener]


def _tcp_socket(server: ServerSettings) -> socket.socket:
    return _listen(server.host, server.port, "Choose another port: helio up --port 8480 (0: any free port).")


def _metrics_socket(monitoring: MonitoringSettings) -> socket.socket | None:
    if monitoring.metrics_address is None:
        return None
    host, port = split_address(monitoring.metrics_address)
    return _listen(host, port, "Set another metrics_address in [monitoring] of cluster.toml.")


def _listen(host: str, port: int, hint: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        raise Conflict(f"Port {port} on {host} cannot be used: {error}.", hint) from error
    listener.listen(512)
    return listener


def _unix_socket(home: Home) -> socket.socket:
    """Open to all Unix users if the server is root: the kernel identifies each of them."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    home.socket.unlink(missing_ok=True)
    folder = os.open(home.path, os.O_PATH | os.O_DIRECTORY)
    try:  # through /proc: a socket's path may have only 107 characters
        listener.bind(f"/proc/self/fd/{folder}/{home.socket.name}")
    finally:
        os.close(folder)
    home.socket.chmod(0o666 if os.geteuid() == 0 else 0o600)
    listener.listen(512)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _write_status(home: Home, facts: dict[str, Any]) -> None:
    draft = home.status_file.with_suffix(".new")
    draft.write_text(json.dumps(facts), encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(home.status_file)


class _PeerProtocol(LimitedHttpProtocol):
    """Records the uid of the client of a Unix socket, and whether a connection uses the metrics address."""

    def __init__(self, limiter: ConnectionLimiter, metrics_port: int | None, **options: Any) -> None:
        super().__init__(limiter, **options)
        self._metrics_port = metrics_port

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is None:
            return
        if connection.family == socket.AF_UNIX:
            self.app_state = {**self.app_state, "peer_uid": peer_uid(connection)}
        elif self._metrics_port in transport.get_extra_info("sockname")[1:2]:
            self.app_state = {**self.app_state, "is_metrics_address": True}


class _Server(uvicorn.Server):
    """Stops on a signal and returns; the original raises the signal again, which would skip the cleanup."""

    def __init__(self, config: uvicorn.Config, settings: Settings) -> None:
        super().__init__(config)
        self._settings, self.restart = settings, False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if _has_terminal() else self._reload)
        yield

    def _reload(self, number: int, frame: FrameType | None) -> None:
        try:
            changed = list_changed_settings(self._settings)
        except HeliostatError as error:
            log.error("settings_not_reloaded", error=error.message, hint=error.hint)
            return
        log.info("settings_reloaded", changed=" ".join(changed) or "none")
        self.restart = True
        self.handle_exit(number, frame)


def _has_terminal() -> bool:
    """A terminal sends SIGHUP when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _run_http(app: Any, listeners: _Listeners, settings: Settings, limiter: ConnectionLimiter) -> bool:
    """Returns whether the server is to start again."""
    metrics_port = listeners.metrics.getsockname()[1] if listeners.metrics else None
    protocol: Any = functools.partial(_PeerProtocol, limiter, metrics_port)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )
    server = _Server(config, settings)
    server.run(sockets=listeners.sockets)
    return server.restart
