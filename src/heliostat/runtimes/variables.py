"""Which variables a tool may see on its way into the container."""

import re
from collections.abc import Mapping

from heliostat.runtimes.contract import CannotContain

# What the dynamic linker, the C library, Go, the tools or the scripts that run them heed: exported to a tool that
# runs outside the container, such a variable would change what the tool does there.
_HEEDED = re.compile(
    r"""(LD|GLIBC|MALLOC|GCONV|NIX|XDG|SSL_CERT|LISTEN|NOTIFY|DBUS|LC|CONTAINERS?|DOCKER|PODMAN|BUILDAH|STORAGE|REGISTRY
    |REGISTRIES|APPTAINER|SINGULARITY|NETAVARK|SLIRP4NETNS|CNI|TMPDIR|TMP|TEMP)(_.*)?
    |(APPTAINER|SINGULARITY)ENV_.*|_.*|(SLURMD?|heliostat)_.*
    |GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK|COVERDIR)|OCI_RUNTIME|TEMPDIR
    |PATH|HOME|USER|LOGNAME|SHELL|PWD|LANG|LANGUAGE|LOCPATH|NLSPATH|RES_OPTIONS|HOSTALIASES|LOCALDOMAIN|HOSTNAME
    |ENV|BASH_ENV|TERM|TZ|TZDIR""",
    re.VERBOSE,
)
_LONGEST_LINE = 60_000  # of a file of variables that a tool reads


def is_heeded(name: str) -> bool:
    return _HEEDED.fullmatch(name) is not None


def split(variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Those that may be exported to the tool, and those that it must get as a text."""
    exported = {name: value for name, value in variables.items() if not is_heeded(name)}
    return exported, {name: value for name, value in variables.items() if is_heeded(name)}


def as_lines(variables: Mapping[str, str]) -> bytes:
    """`NAME=value`, one a line, as podman and docker read them: no quotes, nothing is filled in."""
    for name, value in variables.items():
        if "\n" in value or "\r" in value or len(value) > _LONGEST_LINE:
            raise CannotContain(
                f"the environment variable {name} must be one line of at most {_LONGEST_LINE} bytes"
            )
    text = "".join(f"{name}={value}\n" for name, value in variables.items())
    return text.encode("utf-8", "surrogateescape")
