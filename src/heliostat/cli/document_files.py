"""Reads files that people write: YAML or JSON. YAML aliases are refused: they can make a small file endless."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

MAX_FILE_BYTES = 32 * 2**20
_MAX_DEPTH = 50


def read_file(file: str) -> Any:
    """The content of a file, or with `-` of standard input. Raises BadParameter."""
    content = _parse(file, _read(file))
    if _is_deep(content):
        raise file_error(file, "it is nested too deeply")
    return content


def file_error(file: str, problem: str) -> typer.BadParameter:
    return typer.BadParameter(f"{'standard input' if file == '-' else file}: {problem}.", param_hint="FILE")


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if file == "-" else _bytes(Path(file))
        if len(data) > MAX_FILE_BYTES:
            raise file_error(file, f"it is larger than {MAX_FILE_BYTES // 2**20} MiB")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise file_error(file, "it is not a text file") from error
    except OSError as error:
        raise file_error(file, f"it cannot be read: {error.strerror}") from error


def _bytes(path: Path) -> bytes:
    with path.open("rb") as opened:
        return opened.read(MAX_FILE_BYTES + 1)


def _parse(file: str, text: str) -> Any:
    import yaml

    try:
        if file.endswith(".json"):
            return json.loads(text)
        if text.lstrip()[:1] in {"{", "["}:
            with suppress(ValueError):
                return json.loads(text)
        return parse_yaml(text)
    except RecursionError as error:
        raise file_error(file, "it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise file_error(file, f"it is not JSON: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise file_error(file, f"it is neither YAML nor JSON: {error}") from error


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def parse_yaml(text: str) -> Any:
    """Raises YAMLError, ValueError, RecursionError."""
    import yaml

    return yaml.load(text, _loader())  # noqa: S506 - a SafeLoader


def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Rejects aliases (a few lines of them can expand to billions of words) and duplicate keys (YAML keeps the
        last). Reads `1:30` and dates as text."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                at = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.YAMLError(
                    f"line {at.line + 1}: aliases (*name) are not supported; repeat the value, or use params"
                )
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if isinstance(key, str | int) and key in keys:
                    raise yaml.YAMLError(f"line {key_node.start_mark.line + 1}: duplicate key {key!a}")
                keys.add(key if isinstance(key, str | int) else repr(key))
            return super().construct_mapping(node, deep)

        def construct_yaml_int(self, node: Any) -> Any:
            return node.value if ":" in node.value else super().construct_yaml_int(node)

        def construct_yaml_timestamp(self, node: Any) -> Any:
            return node.value

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_yaml_timestamp)
    return Loader
