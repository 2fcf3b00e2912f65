"""Folder access: lets one user into a folder of the server, with an access control list (POSIX ACL)."""

import errno
import os
import struct

NONE, ENTER, ENTER_AND_LIST = 0o0, 0o1, 0o5
_VERSION = 2
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID = 0xFFFFFFFF
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def grant_folder_access(path: str, uid: int, permissions: int, others: int) -> None:
    """The server keeps all permissions; this user and the others get these. Who can enter a folder can see size
    and time of the files in it. Without ACLs (some network file systems), everybody can enter."""
    entries = (
        (_OWNER, 0o7, _NO_ID),
        (_USER, permissions, uid),
        (_GROUP, 0, _NO_ID),
        (_MASK, permissions, _NO_ID),
        (_OTHERS, others, _NO_ID),
    )
    content = struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", content, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        os.chmod(path, 0o711)
