"""Reads workflow and sweep files (YAML or JSON). Rejects YAML aliases, which can make a small file huge."""

import json
import sys
from pathlib import Path
from typing import Any

import typer

from heliostat.cli.job_options import normalize_begin_time
from heliostat.client.request_bodies import with_environment_spec

MAX_FILE_BYTES = 32 * 2**20


def read_document_file(file: str) -> dict[str, Any]:
    """The fields of a file. Raises BadParameter if it is not a mapping."""
    content = _parse(file, _read(file))
    if not isinstance(content, dict):
        raise file_error(file, "it must be a mapping of fields")
    return content


def read_workflow_file(file: str) -> dict[str, Any]:
    content = read_document_file(file)
    jobs = content.get("jobs")
    if isinstance(jobs, dict):
        content["jobs"] = {str(name): normalize_job_template(job, Path.cwd()) for name, job in jobs.items()}
    return content


def normalize_job_template(job: Any, here: Path) -> Any:
    """A job in the form of the API: files of software as content, times as text, absolute paths."""
    if not isinstance(job, dict):
        return job
    normalized = dict(job)
    if isinstance(begin := job.get("begin"), str):
        normalized["begin"] = normalize_begin_time(begin)
    if isinstance(software := job.get("environment"), str) and "${{" not in software:
        normalized = with_environment_spec(normalized)
    if isinstance(workdir := job.get("workdir"), str) and not workdir.startswith(("/", "${{")):
        normalized["workdir"] = str((here / workdir).resolve())
    return normalized


def parse_name_value_options(given: list[str] | None, option: str) -> dict[str, str]:
    """Parses `lr=0.1`; each name may occur once."""
    values: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or name.strip() in values:
            raise typer.BadParameter(
                f"{text!a} is not valid. Write {option} NAME=VALUE, each name once.", param_hint=option
            )
        values[name.strip()] = value
    return values


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
    try:
        if text.lstrip()[:1] == "{":
            return json.loads(text)
    except (ValueError, RecursionError) as error:
        if file.endswith(".json"):
            raise file_error(file, f"it is not JSON: {error}") from error
    import yaml

    try:
        return yaml.load(text, _loader())  # noqa: S506 - a SafeLoader
    except RecursionError as error:
        raise file_error(file, "it is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        raise file_error(file, f"it is neither YAML nor JSON: {error}") from error


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
