"""Submits one job or an array: its fields come from the command line, a script and the user's defaults."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heliostat.cli.job_defaults import merge_job_fields, read_job_defaults
from heliostat.cli.output import print_message
from heliostat.cli.script_options import read_script_options, warn_about_late_options
from heliostat.cli.submitted_job_report import report_submitted_array, report_submitted_job
from heliostat.cli.uploads import upload_with_progress, warn_about_empty_folder

if TYPE_CHECKING:
    from heliostat.client import Client

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only show the job as it would be submitted, checked by the server.")
]


class ReportFlags(NamedTuple):
    """How the submitted job is reported."""

    wait: bool
    follow: bool
    as_json: bool
    dry_run: bool


def job_layers(job: dict[str, Any], script_name: str | None = None) -> dict[str, dict[str, Any]]:
    """The fields of a job by where they come from; later layers win."""
    layers = {"defaults.toml": read_job_defaults()}
    if "script" in job:
        options = read_script_options(job["script"])
        warn_about_late_options(job["script"])
        layers |= {
            "script": {"name": script_name} if script_name else {},
            "#SBATCH": options.sbatch,
            "#HELIO": options.helio,
        }
        if options.ignored:
            print_message(f"Ignored #SBATCH options: {', '.join(options.ignored)}")
    return {**layers, "command line": job}


def submit_job(client: "Client", layers: dict[str, dict[str, Any]], flags: ReportFlags) -> None:
    """Submits one job or an array, or with --dry-run shows it."""
    job = merge_job_fields(*layers.values())
    warn_about_empty_folder(client, [job], ("--upload .", "--workdir PATH"))
    if flags.dry_run:
        from heliostat.cli.job_preview import print_job_preview

        layers = {"current folder": {"workdir": client.address.default_workdir()}, **layers}
        print_job_preview(client.preview(**job), layers, flags.as_json)
        return
    job = upload_job_folder(client, job)
    if "array" in job:
        report_submitted_array(client, client.submit(**job), flags.wait, flags.follow, flags.as_json)
    else:
        report_submitted_job(client, client.submit(**job), flags.wait, flags.follow, flags.as_json)


def upload_job_folder(client: "Client", job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "upload": upload_with_progress(client, job["upload"])} if "upload" in job else job
