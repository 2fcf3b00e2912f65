"""The table of job fields: a field that is added there is everywhere, and nothing made from it is stale."""

from dataclasses import fields as attributes_of
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel, ValidationError
from scripts.generate_job_fields import field_table, generate_files, option_list, option_rows, typed_dicts
from typer.testing import CliRunner

from heliostat.api.job_field_types import with_job_fields
from heliostat.cli.job_options import job_options
from heliostat.models import JobRequest, JobSpec
from heliostat.models.job_fields import JOB_FIELDS, JobField
from heliostat.web.job_form.command_line import build_command_line
from heliostat.web.job_form.fields import group_fields

MADE_UP = JobField(
    "fan_speed",
    "count",
    "Resources",
    "How fast the fans turn.",
    unit="rpm",
    default=900,
    minimum=300,
    maximum=3000,
)
FIELDS = (*JOB_FIELDS, MADE_UP)


def test_a_new_field_is_in_the_body_of_the_api_with_its_bounds() -> None:
    @with_job_fields(FIELDS)
    class Body(BaseModel):
        """A job."""

    assert Body.model_validate({}).model_dump()["fan_speed"] == 900
    assert Body.model_json_schema()["properties"]["fan_speed"]["description"] == MADE_UP.help
    with pytest.raises(ValidationError, match="less than or equal to 3000"):
        Body.model_validate({"fan_speed": 3001})


def test_a_new_field_is_an_option_of_the_command_line() -> None:
    seen: list[dict[str, Any]] = []
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @job_options("run", FIELDS)
    def run(*, job: dict[str, Any]) -> None:
        seen.append(job)

    assert CliRunner().invoke(app, ["--fan-speed", "1200"]).exit_code == 0
    assert seen == [{"fan_speed": 1200}]
    assert "--fan-speed N" in CliRunner().invoke(app, ["--help"]).output


def test_a_new_field_is_in_the_form_and_in_the_command_line_it_shows() -> None:
    resources = next(group for group in group_fields(FIELDS) if group.title == "Resources")
    shown = resources.fields[-1]
    assert (shown.label, shown.kind, shown.hint, shown.placeholder) == ("Fan speed", "whole", MADE_UP.help, "900")
    assert (
        build_command_line({"command": "a b", "fan_speed": 1200}, FIELDS) == "helio run --fan-speed 1200 -- 'a b'"
    )


def test_a_new_field_is_in_the_types_of_the_client_and_in_the_documentation() -> None:
    assert "    fan_speed: int | None  # How fast the fans turn." in typed_dicts(FIELDS)
    assert "| `fan_speed` | 900 | `--fan-speed` | How fast the fans turn. 300 to 3000 rpm. |" in field_table(
        FIELDS
    )
    assert "| `--fan-speed N` | How fast the fans turn. |" in option_rows(FIELDS)
    assert "`--fan-speed`" in option_list([replace(MADE_UP, cli_commands=("run", "when"))], "when")


def test_a_job_option_of_another_command_is_an_option_of_run_too() -> None:
    with pytest.raises(ValueError, match="fan_speed"):
        option_list([replace(MADE_UP, cli_commands=("when",))], "when")


@pytest.mark.parametrize(
    ("path", "text"), generate_files(JOB_FIELDS).items(), ids=lambda one: getattr(one, "name", "text")
)
def test_what_is_made_from_the_table_is_up_to_date(path: Path, text: str) -> None:
    assert path.read_text("utf-8") == text, "run: python scripts/generate_job_fields.py"


def test_every_field_is_in_a_request_and_all_of_a_request_can_be_asked_for() -> None:
    request = JobRequest(JobSpec())
    paths = {field.request_path for field in JOB_FIELDS if field.request_path is not None}
    for path in paths:
        attrgetter(path)(request)
    parts = {"": request, "spec.": request.spec, "placement.": request.placement, "retry.": request.retry}
    asked = {f"{prefix}{one.name}" for prefix, part in parts.items() for one in attributes_of(part)}
    made_of_several = {"spec", "placement", "retry", "after", "code"}
    set_by_services = {"rerun_of", "kind", "tools"}
    assert asked - paths == made_of_several | set_by_services


def test_each_name_option_and_alias_is_there_once() -> None:
    names = [name for field in JOB_FIELDS for name in (field.name, field.alias) if name]
    assert len(names) == len(set(names))
    options = [flag for field in JOB_FIELDS if field.cli_commands for flag in field.cli_flags]
    assert len(options) == len(set(options))
