"""A further command beside the processes of a running attempt: same cgroup, user, environment and folder."""

import os

from heliostat.engines.environment import DEFAULT_PATH, Person
from heliostat.engines.inside import Inside, as_user
from heliostat.engines.local.cgroups import Group
from heliostat.engines.local.ungrouped import MARK

# Enters the cgroup first, as whoever the server is; a group that is gone lets nobody in.
_ENTER = 'for file in $1; do echo 0 >"$file" || exit 125; done; shift; exec "$@"'


def inside_group(script: str, person: Person, group: Group, mark: str) -> Inside:
    """The script on a descriptor: neither on the disk nor on a command line. OSError when there is none left."""
    descriptor = os.memfd_create("inside")
    os.write(descriptor, script.encode("utf-8", "surrogateescape"))
    program = (*as_user(person), "/bin/sh", f"/proc/self/fd/{descriptor}")
    return Inside(
        argv=("/bin/sh", "-c", _ENTER, "inside", " ".join(group.enter_files), *program),
        environment={"PATH": DEFAULT_PATH, MARK: mark},
        descriptors=(descriptor,),
        close=lambda: os.close(descriptor),
        owner=person.uid,
    )
