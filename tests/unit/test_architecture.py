"""The shape of the code, held by the suite: who may import whom, how modules are named."""

import ast
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "heliostat"

ALLOWED: dict[str, set[str]] = {
    "payloads": set(),
    "models": set(),
    "errors": set(),
    "inotify": set(),
    "server_log": set(),
    "metrics": set(),
    "open_files": set(),
    "socket_queries": set(),
    "untrusted_folders": set(),
    "version": set(),
    "config": {"errors"},
    "schedules": set(),
    "workflows": {"models", "errors"},
    "scheduling": {"models"},
    "fair_use": {"models"},
    "store": {"models", "errors", "workflows", "server_log", "metrics"},
    "runtimes": {"models", "errors", "config"},
    "engines": {
        "payloads",
        "models",
        "errors",
        "inotify",
        "config",
        "runtimes",
        "server_log",
        "open_files",
        "socket_queries",
        "untrusted_folders",
    },
    "notifications": {"models", "errors", "config"},
    "monitoring": set(),
    "scheduling_settings": {"config", "scheduling"},
    "simulation": {"models", "errors", "config", "scheduling", "scheduling_settings", "engines"},
    "controller": {"models", "errors", "config", "scheduling", "store", "engines", "server_log", "metrics"},
    "auth": {"models", "errors", "config", "store", "server_log", "socket_queries"},
    "http_protocol": {"auth"},
    "missing_database": {"errors", "config", "store"},
    "doctor": {"models", "errors", "config", "engines", "auth", "missing_database"},
    "services": {
        "payloads",
        "models",
        "errors",
        "config",
        "runtimes",
        "schedules",
        "workflows",
        "scheduling",
        "fair_use",
        "store",
        "engines",
        "notifications",
        "controller",
        "auth",
        "doctor",
        "untrusted_folders",
        "metrics",
    },
    "loops": {
        "models",
        "errors",
        "config",
        "scheduling",
        "store",
        "engines",
        "notifications",
        "controller",
        "services",
        "server_log",
        "untrusted_folders",
        "monitoring",
    },
    "web": {"models", "errors", "config", "services", "auth", "server_log"},
    "api": {
        "models",
        "errors",
        "inotify",
        "schedules",
        "services",
        "store",
        "auth",
        "web",
        "server_log",
        "metrics",
    },
    "provision": {"models", "errors", "monitoring"},
    "client": {"errors", "config", "models"},
    "integrations": {"payloads", "client", "errors"},
    "proxy": {"models", "errors", "config", "auth", "http_protocol", "services", "server_log"},
    "server": {
        "missing_database",
        "payloads",
        "errors",
        "config",
        "store",
        "engines",
        "controller",
        "auth",
        "http_protocol",
        "open_files",
        "scheduling_settings",
        "services",
        "loops",
        "api",
        "proxy",
        "server_log",
    },
    "demo": {"models", "errors", "config", "store", "engines", "services", "server", "server_log"},
    "cli": {
        "errors",
        "config",
        "models",
        "client",
        "doctor",
        "services",
        "provision",
        "server",
        "demo",
        "simulation",
    },
    "__init__": {"client", "errors", "version"},
}
"""Each part and what it may import of ours, from the bottom to the top; the version is for everybody."""

OUTSIDE: dict[str, set[str]] = {
    "sqlalchemy": {"store", "services"},
    "alembic": {"store"},
    "fastapi": {"api", "web"},
    "starlette": {"api", "web"},
    "pydantic": {"api"},
    "pydantic_core": {"api"},
    "uvicorn": {"server", "proxy", "http_protocol"},
    "httptools": {"proxy"},
    "argon2": {"auth"},
    "pynvml": {"engines"},
    "numpy": {"scheduling", "fair_use", "simulation", "store", "demo"},
    "jinja2": {"web"},
    "markupsafe": {"web"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pathspec": {"client"},
    "yaml": {"cli", "web", "services"},
    "uv": {"services"},
    "distributed": {"integrations"},
    "jupyterhub": {"integrations"},
    "tornado": {"integrations"},
    "traitlets": {"integrations"},
    "structlog": {"server_log"},
}
"""Each library and the parts that may know it."""

ENGINES = {"local", "simulated", "slurm"}
KNOW_AN_ENGINE = {
    "demo": {"simulated": "its cluster and its month of past jobs are made up as that engine makes them up"},
    "simulation": {"simulated": "the GPU models of made-up nodes are those of that engine"},
}
"""Parts that may know an engine by its name, and why."""

SERVER_PARTS = {"doctor", "services", "provision", "server", "demo", "simulation"}
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "misc", "common", "tools", "manager", "base", "core"}


@dataclass(frozen=True)
class Import:
    file: Path
    part: str  # the part of ours that imports
    target: str  # dotted
    when: str  # load, call, typing

    @property
    def ours(self) -> str | None:
        """The part of ours that is imported."""
        words = self.target.split(".")
        return words[1] if words[0] == "heliostat" and len(words) > 1 and words[1] != "__version__" else None

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)} imports {self.target}"


def _files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def _part(file: Path) -> str:
    words = file.relative_to(ROOT).with_suffix("").parts
    return words[0]


@functools.cache
def _imports() -> list[Import]:
    """Read when the first test asks: every worker of a run loads this file, and one of them runs it."""
    return [found for file in _files() for found in _imports_of(file)]


def _imports_of(file: Path) -> Iterator[Import]:
    for node, when in _walk(ast.parse(file.read_text(encoding="utf-8")), "load"):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{file} imports relatively"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        for target in targets:
            yield Import(file, _part(file), target, when)


def _walk(node: ast.AST, when: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(child, "call")
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _walk(child, "typing")
        else:
            yield from _walk(child, when)


def test_every_part_has_its_place_in_the_table() -> None:
    assert {_part(file) for file in _files()} == set(ALLOWED)


def test_the_table_points_downwards_only() -> None:
    below: set[str] = set()
    for part, allowed in ALLOWED.items():
        assert allowed <= below, f"{part} may import {sorted(allowed - below)}, which stand above it"
        below.add(part)


def test_imports_point_downwards_only() -> None:
    wrong = [str(i) for i in _imports() if i.ours and i.ours not in ALLOWED[i.part] | {i.part}]
    assert not wrong, wrong


def test_sub_packages_do_not_import_each_other_in_a_circle() -> None:
    """Whenever an import happens: one that waits until a function is called, or is for types only, counts too."""
    circles = {part: found for part in ALLOWED if (found := _circle(_edges(part)))}
    assert not circles, circles


def _edges(part: str) -> dict[str, set[str]]:
    """Which sub-packages and modules of a part import which others of it."""
    edges: dict[str, set[str]] = {}
    for found in _imports():
        words = found.target.split(".")
        if found.part == part == found.ours and len(words) > 2:
            home = found.file.relative_to(ROOT).with_suffix("").parts[1]
            edges.setdefault(home, set()).add(words[2] if _is_module(words[2], part) else "__init__")
    return {home: targets - {home} for home, targets in edges.items()}


def _is_module(name: str, part: str) -> bool:
    return (ROOT / part / name).is_dir() or (ROOT / part / f"{name}.py").exists()


def _circle(edges: dict[str, set[str]]) -> list[str]:
    """Those that are left when whoever imports none of the others is taken away again and again."""
    left = dict(edges)
    while free := [home for home, targets in left.items() if not targets & left.keys()]:
        for home in free:
            del left[home]
    return sorted(left)


def test_nothing_in_the_table_is_unused() -> None:
    used = {(i.part, i.ours) for i in _imports()}
    spare = {f"{part} -> {target}" for part, allowed in ALLOWED.items() for target in allowed} - {
        f"{part} -> {target}" for part, target in used
    }
    assert not spare, f"remove from the table: {sorted(spare)}"


def test_libraries_stay_behind_their_borders() -> None:
    outside = [i for i in _imports() if i.target.split(".")[0] in OUTSIDE]
    wrong = [str(i) for i in outside if i.part not in OUTSIDE[i.target.split(".")[0]]]
    assert not wrong, wrong


def test_every_library_has_its_place_in_the_table() -> None:
    known = set(sys.stdlib_module_names) | set(OUTSIDE) | {"heliostat"}
    wrong = [str(i) for i in _imports() if i.target.split(".")[0] not in known]
    assert not wrong, wrong


def test_payloads_models_and_client_need_only_the_standard_library() -> None:
    pure = {"payloads", "models", "errors", "config", "client", "doctor"}
    known = set(sys.stdlib_module_names) | {"heliostat"}
    on_demand = {"pathspec"}  # for those who upload a folder
    wrong = [
        str(i)
        for i in _imports()
        if i.part in pure
        and (word := i.target.split(".")[0]) not in known
        and not (i.when == "call" and word in on_demand)
    ]
    assert not wrong, wrong


def test_scheduling_knows_no_clock_disk_network_or_chance() -> None:
    worldly = {"os", "time", "random", "socket", "pathlib", "threading", "asyncio", "subprocess", "sqlite3"}
    wrong = [str(i) for i in _imports() if i.part == "scheduling" and i.target.split(".")[0] in worldly]
    assert not wrong, wrong


def test_only_the_factory_knows_which_engines_there_are() -> None:
    """The others ask the engine they have, by `engines/contract.py`."""
    for found in (i for i in _imports() if i.target.startswith("heliostat.engines.")):
        home, kind = found.file.relative_to(ROOT).parts, found.target.split(".")[2]
        allowed = kind not in ENGINES or home[:2] == ("engines", kind) or home == ("engines", "factory.py")
        assert allowed or kind in KNOW_AN_ENGINE.get(found.part, {}), str(found)


def test_programs_that_run_inside_jobs_need_nothing_of_ours() -> None:
    """They are sent along to machines where nothing else of ours is."""
    wrong = [str(i) for i in _imports() if i.part == "payloads" and i.ours not in (None, "payloads")]
    assert not wrong, wrong


def test_no_class_is_split_over_files_by_inheritance() -> None:
    """A class that one other inherits from, elsewhere, and that is nothing by itself, is a part of that other."""
    split = {base: heirs for base, heirs in _heirs().items() if _is_part_of(base, heirs)}
    assert not split, split


@functools.cache
def _classes() -> dict[str, tuple[ast.ClassDef, list[str]]]:
    """By dotted name: each class of ours, and the dotted names of its bases."""
    found = {}
    for file in _files():
        tree, home = ast.parse(file.read_text(encoding="utf-8")), _dotted(file)
        names = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
            found[f"{home}.{node.name}"] = (node, [names.get(base, f"{home}.{base}") for base in bases])
    return found


def _dotted(file: Path) -> str:
    return ".".join(("heliostat", *file.relative_to(ROOT).with_suffix("").parts))


def _heirs() -> dict[str, list[str]]:
    heirs: dict[str, list[str]] = {}
    for name, (_, bases) in _classes().items():
        for base in bases:
            heirs.setdefault(base, []).append(name)
    return {base: names for base, names in heirs.items() if base in _classes()}


def _is_part_of(base: str, heirs: list[str]) -> bool:
    module, _, name = base.rpartition(".")
    is_elsewhere = len(heirs) == 1 and heirs[0].rpartition(".")[0] != module
    return is_elsewhere and not _is_abstract(base) and name not in _made()


def _is_abstract(name: str) -> bool:
    """A contract, an error, or something that a library makes of it."""
    if name not in _classes():
        return name.rpartition(".")[2] in {"Protocol", "ABC", "Exception", "BaseModel", "TypedDict"}
    return any(map(_is_abstract, _classes()[name][1]))


@functools.cache
def _made() -> set[str]:
    """The names of everything that is called somewhere: these are classes of their own."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in _files())
    calls = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {call.id if isinstance(call, ast.Name) else ast.unparse(call).rpartition(".")[2] for call in calls}


def test_commands_load_the_server_only_when_they_run_it() -> None:
    wrong = [str(i) for i in _imports() if i.part == "cli" and i.ours in SERVER_PARTS and i.when == "load"]
    assert not wrong, wrong


@pytest.mark.parametrize(
    "module", ["heliostat.client", "heliostat.cli.command_tree", "heliostat.cli.run", "heliostat.cli.jobs"]
)
def test_the_skins_that_speak_http_load_nothing_of_the_server(module: str) -> None:
    """What is really loaded, whatever the table says."""
    loaded = _loaded_with(module)
    forbidden = {"sqlalchemy", "fastapi", "starlette", "pydantic", "uvicorn", "asyncio", "rich", "structlog"}
    forbidden |= {
        f"heliostat.{part}" for part in ("store", "services", "controller", "loops", "engines", "api", "server")
    }
    assert not loaded & forbidden


def test_a_server_loads_nothing_that_it_does_not_need_all_the_time() -> None:
    """All of these were loaded once, and stayed: 17 MB of an idle server."""
    loaded = _loaded_with("heliostat.server, heliostat.engines.local.engine")
    assert not loaded & {
        "alembic",
        "rich",
        "pygments",
        "typer",
        "sqlalchemy.orm",
        "sqlalchemy.dialects.postgresql",
    }
    assert not loaded & {"heliostat.engines.slurm.engine", "heliostat.engines.simulated.engine"}


def _loaded_with(modules: str) -> set[str]:
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_modules_are_named_after_what_they_hold() -> None:
    words = {
        word for file in _files() for part in file.relative_to(ROOT).parts for word in Path(part).stem.split("_")
    }
    assert not words & FORBIDDEN_NAMES


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(file.relative_to(ROOT))
        for file in _files()
        if file.read_text(encoding="utf-8").strip() and not ast.get_docstring(ast.parse(file.read_text("utf-8")))
    ]
    assert not silent, f"no docstring: {silent}"


def test_no_two_files_of_tests_have_the_same_name() -> None:
    """They would be taken for one module when they run together."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_folders_of_users_are_walked_and_removed_in_one_module() -> None:
    """`shutil.rmtree` and `os.walk` recurse or build paths: a user can nest folders deeper than both can go."""
    own_files = {"payloads", "provision", "web"}  # run as the user; create and read their own files only
    for file in _files():
        if _part(file) not in own_files:
            text = file.read_text(encoding="utf-8")
            for call in ("shutil.rmtree", "os.walk", ".rglob(", '"rm", "-rf"'):
                allowed = 1 if (file.name, call) == ("containers.py", '"rm", "-rf"') else 0  # in a user namespace
                assert text.count(call) <= allowed, f"{file.relative_to(ROOT)} uses {call}: use untrusted_folders"


def test_migrations_follow_each_other_in_one_line() -> None:
    """Two that were made at the same time must not have the same number: no database could be upgraded."""
    names = sorted(path.name for path in (ROOT / "store/migrations/versions").glob("0*.py"))
    numbers = [name.partition("_")[0] for name in names]
    assert len(numbers) == len(set(numbers)), numbers
