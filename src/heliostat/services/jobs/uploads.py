"""Code that people send for their jobs: what of it is missing, the missing as it arrives, and whether a job may
have it."""

from collections.abc import Sequence
from dataclasses import dataclass

from heliostat.errors import BadRequest, Conflict, Forbidden, Invalid, TooLarge
from heliostat.models import Caller, JobRequest, User
from heliostat.models.quantities import parse_memory
from heliostat.models.uploads import FileTree, TreeFile, largest_files
from heliostat.services.context import Context
from heliostat.store.uploads import BlobWriter

_LONGEST_HEAD = 100  # bytes: a sha256, a blank and a number


@dataclass(frozen=True, slots=True)
class UploadStatus:
    upload_id: str  # the id of the tree
    size_bytes: int
    missing: tuple[str, ...]  # digests; none: jobs may use it


def register_upload(context: Context, caller: Caller, tree: FileTree) -> UploadStatus:
    """What of it this person has not sent yet; with nothing missing it is there for jobs. May be repeated."""
    _check_account(caller.user)
    _check_size(tree, parse_size_bytes(context.settings.storage.upload_max_size))
    missing = context.uploads.list_missing_blobs(caller.user.name, tree)
    if missing:
        _check_quota(context, caller.user, sum(tree.blobs[digest] for digest in missing))
    else:
        context.uploads.add_tree(caller.user.name, tree)
    return UploadStatus(tree.id, tree.size_bytes, tuple(missing))


class UploadReceiver:
    """Takes contents as they arrive, one after the other, each after a line with its sha256 and its size.

    Each is kept as soon as it is whole and proven; what was not whole when the stream ended is dropped.
    """

    def __init__(self, context: Context, caller: Caller) -> None:
        _check_account(caller.user)
        self._uploads, self._user = context.uploads, caller.user
        self._largest = parse_size_bytes(context.settings.storage.upload_max_size)
        self._quota = context.settings.storage.upload_quota
        self._room = parse_size_bytes(self._quota) - context.uploads.used_bytes(caller.user.name)
        self._head = b""
        self._draft: BlobWriter | None = None
        self.stored_count = 0

    def feed(self, data: bytes) -> None:
        """Raises BadRequest, Conflict or TooLarge."""
        rest = memoryview(data)
        while rest or (self._draft and not self._draft.remaining_bytes):
            rest = self._write(self._draft, rest) if self._draft else self._begin(rest)

    def finish(self) -> int:
        """How many were stored. Raises BadRequest when the stream ended too early."""
        if self._draft or self._head:
            self.discard_partial()
            raise BadRequest("The upload ended in the middle of a file.", "Send it again.")
        return self.stored_count

    def discard_partial(self) -> None:
        """What is not whole goes."""
        if self._draft:
            self._draft.discard()
        self._draft = None

    def _begin(self, rest: memoryview) -> memoryview:
        piece = bytes(rest[:_LONGEST_HEAD])
        line, newline, _ = piece.partition(b"\n")
        self._head += line
        if not newline and len(self._head) < _LONGEST_HEAD:
            return rest[len(piece) :]
        digest, size_bytes = self._announced(self._head)
        self._head = b""
        self._draft = self._uploads.create_blob_writer(self._user.name, digest, size_bytes)
        return rest[len(line) + 1 :]

    def _announced(self, head: bytes) -> tuple[str, int]:
        words = head.decode("ascii", "replace").split(" ")
        if len(words) != 2 or not is_digest(words[0]) or not (words[1].isdecimal() and len(words[1]) < 16):
            raise BadRequest("The upload is not in its form.", "Each file follows a line: SHA256 SIZE.")
        size_bytes = int(words[1])
        if size_bytes > self._largest:
            raise TooLarge(f"A file is larger than {self._largest // 2**20} MiB.", "Leave it out.")
        self._room -= size_bytes
        if self._room < 0:
            raise _quota_full(self._quota)
        return words[0], size_bytes

    def _write(self, draft: BlobWriter, rest: memoryview) -> memoryview:
        part = rest[: draft.remaining_bytes]
        draft.write(bytes(part))
        if not draft.remaining_bytes:
            self._draft = None
            draft.finish()
            self.stored_count += 1
        return rest[len(part) :]


def check_uploads(context: Context, user: User, requests: Sequence[JobRequest]) -> None:
    """Raises Invalid for code that this person has not uploaded. What is used is kept for another while."""
    for upload in {request.spec.upload for request in requests if request.spec.upload is not None}:
        if context.uploads.find_tree(user.name, upload) is None:
            raise Invalid(
                f"You have uploaded nothing of the id {upload[:12]}…, or it was removed since.",
                "Upload the folder again: helio run --upload FOLDER -- CMD.",
                fields={"upload": "not there"},
            )


def is_digest(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")


def parse_size_bytes(size: str) -> int:
    """Of a setting."""
    return parse_memory(size) * 2**20


def _check_account(user: User) -> None:
    if user.unix_user is None:
        raise Forbidden(
            "Your account has no Unix user on this machine, so it cannot run jobs.",
            f"An admin can set one: helio user set {user.name} --unix-user NAME.",
        )


def _check_size(tree: FileTree, most: int) -> None:
    if tree.size_bytes <= most:
        return
    raise TooLarge(
        f"The folder has {_mib(tree.size_bytes)}, and an upload may have {_mib(most)}. "
        f"The largest: {', '.join(map(_in_words, largest_files(tree.files)))}.",
        "Name what the job does not need in .heliostatignore, as in .gitignore; keep data where the nodes see it.",
    )


def _check_quota(context: Context, user: User, more: int) -> None:
    if context.uploads.used_bytes(user.name) + more > parse_size_bytes(context.settings.storage.upload_quota):
        raise _quota_full(context.settings.storage.upload_quota)


def _quota_full(quota: str) -> Conflict:
    return Conflict(
        f"With this you would have uploaded more than {quota}.",
        "What no unfinished job needs goes by itself after some days; an admin can raise upload_quota.",
        code="upload_quota",
    )


def _in_words(file: TreeFile) -> str:
    return f"{file.path} ({_mib(file.size_bytes)})"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"
