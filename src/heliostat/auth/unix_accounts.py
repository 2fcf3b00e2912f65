"""Unix accounts of this machine (passwd, LDAP, SSSD)."""

import os
import pwd
from dataclasses import dataclass, field

FIRST_HUMAN_UID = 1000  # lower ones are system accounts (UID_MIN of login.defs)
# The overflow uid stands for any unknown user, so it does not identify one; -1 is "no uid".
_ANONYMOUS_UIDS = frozenset({65534, 2**32 - 2, 2**32 - 1})


@dataclass(frozen=True, slots=True)
class UnixAccount:
    uid: int
    gid: int
    name: str
    home: str

    @property
    def is_person(self) -> bool:
        return self.uid >= FIRST_HUMAN_UID and self.uid not in _ANONYMOUS_UIDS


@dataclass(frozen=True)
class UnixAccounts:
    """Queries the machine (passwd, LDAP, SSSD…), so it may be slow: never call it inside a transaction."""

    server_uid: int = field(default_factory=os.geteuid)

    @property
    def server_is_root(self) -> bool:
        return self.server_uid == 0

    def find_by_uid(self, uid: int) -> UnixAccount | None:
        try:
            return _account(pwd.getpwuid(uid))
        except (KeyError, OverflowError):
            return None

    def find_by_name(self, name: str) -> UnixAccount | None:
        """The account under its primary name: several names may share one uid."""
        try:
            return self.find_by_uid(pwd.getpwnam(name).pw_uid)
        except (KeyError, ValueError):  # ValueError: a NUL or a lone surrogate in the name
            return None

    def may_have_account(self, uid: int) -> bool:
        return uid in (0, self.server_uid) or (uid >= FIRST_HUMAN_UID and uid not in _ANONYMOUS_UIDS)

    def is_local_admin(self, uid: int) -> bool:
        """Root and the user of the server are admins: they can change its files anyway."""
        return uid in (0, self.server_uid)

    def local_admin_names(self) -> frozenset[str]:
        """Names of root and of the user of the server."""
        accounts = (self.find_by_uid(uid) for uid in {0, self.server_uid})
        return frozenset(account.name for account in accounts if account)


def _account(entry: pwd.struct_passwd) -> UnixAccount:
    return UnixAccount(entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir)
