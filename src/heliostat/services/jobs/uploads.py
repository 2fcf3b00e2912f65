"""Uploads of code for jobs: which files are missing, receiving them, size limits and quota."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliostat.errors import BadRequest, Conflict, Forbidden, Invalid, TooLarge
from heliostat.models import Caller, JobRequest, User
from heliostat.models.quantities import parse_memory
from heliostat.models.uploads import (
    MIN_COUNTED_BYTES,
    FileTree,
    TreeFile,
    counted_bytes,
    largest_files,
    tree_to_text,
)
from heliostat.services.context import Context
from heliostat.store.uploads import BlobWriter, count_unfinished_uploads

_MAX_HEADER_BYTES = 100  # bytes: a sha256, a space and a number


@dataclass(frozen=True, slots=True)
class UploadStatus:
    upload_id: str  # the id of the tree
    size_bytes: int
    missing: tuple[str, ...]  # digests; empty: jobs can use it


def register_upload(context: Context, caller: Caller, tree: FileTree) -> UploadStatus:
    """The files that the caller has not sent yet. If none is missing, jobs can use the upload. Can be repeated."""
    _check_account(caller.user)
    _check_size(tree, parse_size_bytes(context.settings.storage.upload_max_size))
    missing = context.uploads.list_missing_blobs(caller.user.name, tree)
    more = [tree.blobs[digest] for digest in missing]
    if context.uploads.find_copy_bytes(caller.user.name, tree.id) is None:
        more.append(len(tree_to_text(tree)))
    if more:
        _check_quota(context, caller.user, sum(map(counted_bytes, more)))
    if not missing:
        context.uploads.add_tree(caller.user.name, tree)
    return UploadStatus(tree.id, tree.size_bytes, tuple(missing))


class UploadReceiver:
    """Receives a stream of files, each after a line with its sha256 and its size.

    A file is stored once it is complete and its digest is verified; an incomplete last file is discarded.
    """

    def __init__(self, context: Context, caller: Caller) -> None:
        _check_account(caller.user)
        self._uploads, self._user = context.uploads, caller.user
        self._max_file_bytes = parse_size_bytes(context.settings.storage.upload_max_size)
        self._quota = context.settings.storage.upload_quota
        self._free_bytes = parse_size_bytes(self._quota) - context.uploads.used_bytes(caller.user.name)
        self._header = b""
        self._writer: BlobWriter | None = None
        self.stored_count = 0

    def feed(self, data: bytes) -> None:
        """Raises BadRequest, Conflict or TooLarge."""
        remaining = memoryview(data)
        while remaining or (self._writer and not self._writer.remaining_bytes):
            remaining = self._write(self._writer, remaining) if self._writer else self._begin(remaining)

    def finish(self) -> int:
        """The number of stored files. Raises BadRequest if the stream ended within a file."""
        if self._writer or self._header:
            self.discard_partial()
            raise BadRequest("The upload ended in the middle of a file.", "Send it again.")
        return self.stored_count

    def discard_partial(self) -> None:
        """Discard the incomplete file."""
        if self._writer:
            self._writer.discard()
        self._writer = None

    def _begin(self, remaining: memoryview) -> memoryview:
        piece = bytes(remaining[:_MAX_HEADER_BYTES])
        line, newline, _ = piece.partition(b"\n")
        self._header += line
        if not newline and len(self._header) < _MAX_HEADER_BYTES:
            return remaining[len(piece) :]
        digest, size_bytes = self._parse_header(self._header)
        self._header = b""
        self._writer = self._uploads.create_blob_writer(self._user.name, digest, size_bytes)
        return remaining[len(line) + 1 :]

    def _parse_header(self, header: bytes) -> tuple[str, int]:
        parts = header.decode("ascii", "replace").split(" ")
        if len(parts) != 2 or not is_digest(parts[0]) or not (parts[1].isdecimal() and len(parts[1]) < 16):
            raise BadRequest("The upload has an invalid format.", "Send a line SHA256 SIZE before each file.")
        size_bytes = int(parts[1])
        if size_bytes > self._max_file_bytes:
            raise TooLarge(
                f"A file is larger than {self._max_file_bytes // 2**20} MiB.", "Exclude it from the upload."
            )
        self._free_bytes -= counted_bytes(size_bytes)
        if self._free_bytes < 0:
            raise _quota_full(self._quota)
        return parts[0], size_bytes

    def _write(self, writer: BlobWriter, remaining: memoryview) -> memoryview:
        part = remaining[: writer.remaining_bytes]
        writer.write(bytes(part))
        if not writer.remaining_bytes:
            self._writer = None
            writer.finish()
            self.stored_count += 1
        return remaining[len(part) :]


def check_uploads(context: Context, user: User, requests: Sequence[JobRequest]) -> None:
    """Raises Invalid for code that the user has not uploaded, and Conflict if the copies for the user's unfinished
    jobs would be too large. Extends the lifetime of uploads that are used."""
    copies = Counter[str]()
    for request in requests:
        if request.spec.upload is not None:
            copies[request.spec.upload] += len(request.array.indexes) if request.array else 1
    if not copies:
        return
    for upload in copies:
        if context.uploads.find_copy_bytes(user.name, upload) is None:
            raise Invalid(
                f"You have no upload with the id {upload[:12]}…, or it has been deleted.",
                "Upload the folder again: helio run --upload FOLDER -- CMD.",
                fields={"upload": "does not exist"},
            )
    with context.store.read() as conn:
        earlier = count_unfinished_uploads(conn, user.name)
    _check_copies(context, user, copies, earlier)


def _check_copies(context: Context, user: User, copies: Mapping[str, int], earlier: Mapping[str, int]) -> None:
    def total(counts: Mapping[str, int]) -> int:
        return sum(
            count * (context.uploads.find_copy_bytes(user.name, upload) or 0) for upload, count in counts.items()
        )

    before, more, quota = total(earlier), total(copies), context.settings.storage.upload_copies_quota
    if before + more > parse_size_bytes(quota):
        raise Conflict(
            f"Each job gets a copy of its uploaded code. The copies for these jobs count {_mib(more)}, and those "
            f"for your other unfinished jobs {_mib(before)}; together they may count {quota}.",
            "Submit fewer jobs at a time, or exclude files with .heliostatignore. An admin can raise "
            "storage.upload_copies_quota.",
            code="upload_quota",
        )


def is_digest(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")


def parse_size_bytes(size: str) -> int:
    """The value of a setting, in bytes."""
    return parse_memory(size) * 2**20


def _check_account(user: User) -> None:
    if user.unix_user is None:
        raise Forbidden(
            "Your account has no Unix user on this server, so it cannot run jobs.",
            f"An admin can set one: helio user set {user.name} --unix-user NAME.",
        )


def _check_size(tree: FileTree, max_bytes: int) -> None:
    if tree.size_bytes <= max_bytes:
        return
    raise TooLarge(
        f"The folder has {_mib(tree.size_bytes)}; an upload may have at most {_mib(max_bytes)}. "
        f"Largest files: {', '.join(map(_format_file, largest_files(tree.files)))}.",
        "List files that the job does not need in .heliostatignore (syntax of .gitignore); "
        "keep data on storage that the nodes can read.",
    )


def _check_quota(context: Context, user: User, more_bytes: int) -> None:
    if context.uploads.used_bytes(user.name) + more_bytes > parse_size_bytes(
        context.settings.storage.upload_quota
    ):
        raise _quota_full(context.settings.storage.upload_quota)


def _quota_full(quota: str) -> Conflict:
    return Conflict(
        f"This upload would exceed your quota of {quota}, in which each file counts at least "
        f"{MIN_COUNTED_BYTES // 2**10} KiB.",
        "Uploads that no unfinished job needs are deleted after some days. An admin can raise "
        "storage.upload_quota.",
        code="upload_quota",
    )


def _format_file(file: TreeFile) -> str:
    return f"{file.path} ({_mib(file.size_bytes)})"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"
