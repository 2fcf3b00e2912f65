"""How to repeat a job: the command that does, and what is kept of its code and machine."""

from dataclasses import dataclass

from heliostat.models.provenance import AttemptEnvironment, SourceCode
from heliostat.services.jobs.reruns import JobWithProvenance

_MOST_SHOWN = 20_000  # characters of a diff; `helio show --record` has all of it


@dataclass(frozen=True, slots=True)
class RerunView:
    command: str
    provenance: tuple[tuple[str, str], ...]
    diff: str
    is_diff_truncated: bool
    untracked_files: tuple[str, ...]
    rerun_of: int | None  # the job it repeats
    reruns: tuple[int, ...]
    compare_url: str  # the page that says what differed


def build_rerun_view(kept: JobWithProvenance) -> RerunView:
    record, code = kept.provenance, kept.provenance.code or SourceCode()
    facts = (*_code_facts(code), *_upload_facts(kept), *_machine_facts(record.latest_environment))
    other = record.rerun_of or (kept.reruns[0] if kept.reruns else None)
    return RerunView(
        command=f"helio rerun {kept.job.id}",
        provenance=tuple((name, value) for name, value in facts if value),
        diff=code.diff[:_MOST_SHOWN],
        is_diff_truncated=code.is_diff_cut or len(code.diff) > _MOST_SHOWN,
        untracked_files=code.untracked,
        rerun_of=record.rerun_of,
        reruns=kept.reruns,
        compare_url=f"/compare?a={other}&b={kept.job.id}" if other else f"/compare?a={kept.job.id}",
    )


def _code_facts(code: SourceCode) -> tuple[tuple[str, str], ...]:
    dirty = "" if code.is_clean or not code.commit else ", with changes that were not committed"
    return (
        ("Commit", f"{(code.commit or '')[:12]}{dirty}"),
        ("Branch", code.branch or ""),
        ("Remote", code.remote or ""),
        ("From", code.folder or ""),
    )


def _upload_facts(kept: JobWithProvenance) -> tuple[tuple[str, str], ...]:
    upload, tree = kept.job.spec.upload, kept.code_tree
    if upload is None:
        return ()
    told = f"{len(tree.files)} files" if tree else "not there any more"
    return (("Uploaded", f"{upload[:12]}, {told}"),)


def _machine_facts(machine: AttemptEnvironment | None) -> tuple[tuple[str, str], ...]:
    if machine is None:
        return ()
    return (
        ("Ran on", ", ".join(machine.nodes)),
        ("GPUs", ", ".join(machine.gpus)),
        ("Driver", machine.driver or ""),
        ("Image", machine.image_digest or ""),
        ("Environment", machine.environment or ""),
        *(("Dataset", dataset) for dataset in machine.datasets),
        ("Heliostat", machine.heliostat),
    )
