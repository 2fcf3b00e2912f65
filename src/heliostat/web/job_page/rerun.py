"""Rerun section of the job page: command, source code and environment of the job."""

from dataclasses import dataclass

from heliostat.models.provenance import AttemptEnvironment, SourceCode
from heliostat.services.jobs.reruns import JobWithProvenance
from heliostat.web.formatting import format_count

_MAX_SHOWN = 20_000  # characters of a diff; `helio show --record` prints all of it


@dataclass(frozen=True, slots=True)
class RerunView:
    command: str
    provenance: tuple[tuple[str, str], ...]
    diff: str
    is_diff_truncated: bool
    untracked_files: tuple[str, ...]
    rerun_of: int | None  # the job that this one reran
    reruns: tuple[int, ...]
    compare_url: str  # page that compares the jobs


def build_rerun_view(recorded: JobWithProvenance) -> RerunView:
    record, code = recorded.provenance, recorded.provenance.code or SourceCode()
    facts = (*_code_facts(code), *_upload_facts(recorded), *_environment_facts(record.latest_environment))
    other = record.rerun_of or (recorded.reruns[0] if recorded.reruns else None)
    return RerunView(
        command=f"helio rerun {recorded.job.id}",
        provenance=tuple((name, value) for name, value in facts if value),
        diff=code.diff[:_MAX_SHOWN],
        is_diff_truncated=code.is_diff_cut or len(code.diff) > _MAX_SHOWN,
        untracked_files=code.untracked,
        rerun_of=record.rerun_of,
        reruns=recorded.reruns,
        compare_url=f"/compare?a={other}&b={recorded.job.id}" if other else f"/compare?a={recorded.job.id}",
    )


def _code_facts(code: SourceCode) -> tuple[tuple[str, str], ...]:
    dirty = "" if code.is_clean or not code.commit else ", with uncommitted changes"
    return (
        ("Commit", f"{(code.commit or '')[:12]}{dirty}"),
        ("Branch", code.branch or ""),
        ("Remote", code.remote or ""),
        ("Folder", code.folder or ""),
    )


def _upload_facts(recorded: JobWithProvenance) -> tuple[tuple[str, str], ...]:
    upload, tree = recorded.job.spec.upload, recorded.code_tree
    if upload is None:
        return ()
    files = format_count(len(tree.files), "file") if tree else "no longer stored"
    return (("Uploaded", f"{upload[:12]}, {files}"),)


def _environment_facts(environment: AttemptEnvironment | None) -> tuple[tuple[str, str], ...]:
    if environment is None:
        return ()
    return (
        ("Nodes", ", ".join(environment.nodes)),
        ("GPUs", ", ".join(environment.gpus)),
        ("Driver", environment.driver or ""),
        ("Image", environment.image_digest or ""),
        ("Environment", environment.environment or ""),
        *(("Dataset", dataset) for dataset in environment.datasets),
        ("Heliostat", environment.heliostat),
    )
