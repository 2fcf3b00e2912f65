"""The limit of open files: the server raises its own; programs that it starts for users get the original one."""

import os
import resource

ORIGINAL_LIMIT_VARIABLE = "HELIOSTAT_OPEN_FILES"


def raise_open_files_limit() -> int:
    """Raises the soft limit of this process to the hard limit, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.environ.setdefault(ORIGINAL_LIMIT_VARIABLE, str(soft))  # a server that starts itself again has it already
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
