"""Reads `cluster.toml`, checks every key and value, and builds the settings."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heliostat.config.home import Home
from heliostat.config.renamed_settings import REMOVED_SETTINGS, RENAMED_SETTINGS
from heliostat.config.sections import StorageSettings
from heliostat.config.setting_rules import advise_value, find_value_fault, format_toml, redact_value
from heliostat.config.settings import COMMAND_LINE_SOURCE, SECTIONS, Settings, section_fields
from heliostat.errors import Invalid

SectionValues = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    key: str  # "containers.keep_days", as in the file
    message: str
    hint: str


def load_settings(home: Home, options: SectionValues | None = None) -> Settings:
    """`cluster.toml` in the home, if it exists. Options, by section, override it; None: not set.

    Raises Invalid with all problems.
    """
    written = read_config(home.config_file)
    _refuse(home.config_file, find_problems(written))
    chosen = {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in (options or {}).items()
    }
    _refuse(COMMAND_LINE_SOURCE, find_problems(chosen))
    sources = {f"{section}.{key}": home.config_file.name for section, values in written.items() for key in values}
    sources |= {f"{section}.{key}": COMMAND_LINE_SOURCE for section, values in chosen.items() for key in values}
    sections = {
        name: record(**_frozen({**written.get(name, {}), **chosen.get(name, {})}))
        for name, record in SECTIONS.items()
    }
    return Settings(_with_database_folder(home, sections["storage"]), **sections, sources=sources)


def read_section(file: Path, name: str, written: Mapping[str, Any]) -> Any:
    """The settings of one section in the contents of a file. Raises Invalid."""
    values = written.get(name, {})
    _refuse(file, find_problems({name: values}))
    return SECTIONS[name](**_frozen(values))


def find_configured_home(home: Home, config_file: Path) -> Home:
    """The home with the database folder that this file names; other settings need not be valid. Raises Invalid."""
    storage = read_config(config_file).get("storage")
    folder = storage.get("database_folder") if isinstance(storage, Mapping) else None
    return _with_database_folder(
        home, StorageSettings(database_folder=folder if isinstance(folder, str) else None)
    )


def list_changed_settings(running: Settings) -> list[str]:
    """Keys whose value in `cluster.toml` is no longer the one that the server runs with. Raises Invalid."""
    on_disk = load_settings(running.home, running.command_line_options)
    return [
        f"{section}.{name}"
        for section in SECTIONS
        for name in section_fields(section)
        if getattr(getattr(on_disk, section), name) != getattr(getattr(running, section), name)
    ]


def read_config(path: Path) -> dict[str, Any]:
    """The contents, unchecked; empty if the file does not exist. Raises Invalid if it is not TOML."""
    import tomllib

    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for a writer
            raise Invalid(f"{path} is not a regular file.", "Name a settings file.")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
    except RecursionError:
        raise Invalid(f"{path} cannot be read: its values are nested too deeply.", "Fix the brackets.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}", "Fix this line; the file must be valid TOML.") from error


def check_config(path: Path, *, may_be_missing: bool = False) -> list[ConfigProblem]:
    """All problems of a file."""
    if not path.exists() and not may_be_missing:
        return [ConfigProblem("", f"The file {path} does not exist.", "Check the path.")]
    try:
        return find_problems(read_config(path))
    except Invalid as error:
        return [ConfigProblem("", error.message, error.hint or "")]


def find_problems(written: Mapping[str, Any]) -> list[ConfigProblem]:
    """All problems of the contents of a file."""
    return [
        problem
        for name, values in written.items()
        for problem in (
            _in_section(name, values) if name in SECTIONS and isinstance(values, Mapping) else [_misplaced(name)]
        )
    ]


def find_closest_match(word: str, known: Iterable[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def _with_database_folder(home: Home, storage: StorageSettings) -> Home:
    return replace(home, database_folder=Path(storage.database_folder) if storage.database_folder else None)


def _refuse(place: object, problems: list[ConfigProblem]) -> None:
    if not problems:
        return
    messages = "; ".join(problem.message for problem in problems)
    hints = dict.fromkeys(problem.hint for problem in problems)
    hint = " ".join(hints) if len(hints) < 3 else "`helio config check` shows how to fix them."
    raise Invalid(f"{place}: {messages}.", hint)


def _frozen(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _in_section(section: str, values: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    known = section_fields(section)
    for name, value in values.items():
        if name not in known:
            yield _unknown(section, name)
        elif fault := find_value_fault(known[name], value):
            message = f"[{section}] {name} = {format_toml(redact_value(name, value))} {fault}"
            yield ConfigProblem(f"{section}.{name}", message, advise_value(known[name]))


def _unknown(section: str, name: str) -> ConfigProblem:
    """For a name that the section does not have."""
    key, known = f"{section}.{name}", section_fields(section)
    if name in RENAMED_SETTINGS and RENAMED_SETTINGS[name].partition(".")[2] != name:
        return ConfigProblem(
            key,
            f"[{section}] {name} is now {_place(RENAMED_SETTINGS[name])}",
            _how_to_write(RENAMED_SETTINGS[name]),
        )
    if near := find_closest_match(name, known):
        hint = f"Did you mean {near}?"
    elif others := _sections_with(name):
        hint = f"It belongs in {others}."
    else:
        hint = f"Settings of this section: {', '.join(known)}."
    return ConfigProblem(key, f"[{section}] has no setting {name!r}", hint)


def _misplaced(name: str) -> ConfigProblem:
    """For a name outside of all sections, or an unknown section."""
    if name in REMOVED_SETTINGS:
        return ConfigProblem(name, f"there is no setting {name!r}", REMOVED_SETTINGS[name])
    if name in RENAMED_SETTINGS:
        return ConfigProblem(
            name, f"{name} is now {_place(RENAMED_SETTINGS[name], name)}", _how_to_write(RENAMED_SETTINGS[name])
        )
    if name in SECTIONS:
        return ConfigProblem(name, f"{name} is a section", f"Write [{name}] on a line, and its settings below.")
    if others := _sections_with(name):
        return ConfigProblem(name, f"{name} must be in a section", f"Write it below a line {others}.")
    if near := find_closest_match(name, SECTIONS):
        return ConfigProblem(name, f"there is no section [{name}]", f"Did you mean [{near}]?")
    places = {
        known: f"{section}.{known}" for section in SECTIONS for known in section_fields(section)
    } | RENAMED_SETTINGS
    near = find_closest_match(name, places)
    hint = f"Did you mean {_place(places[near])}?" if near else f"Sections: {', '.join(SECTIONS)}."
    return ConfigProblem(name, f"there is no setting or section {name!r}", hint)


def _sections_with(name: str) -> str:
    return " or ".join(f"[{section}]" for section in SECTIONS if name in section_fields(section))


def _place(key: str, old_name: str = "") -> str:
    section, _, name = key.partition(".")
    return f"in [{section}]" if name == old_name else f"{name} in [{section}]"


def _how_to_write(key: str) -> str:
    section, _, name = key.partition(".")
    return f"Write {name} = … below a line [{section}]."
