"""The script that makes a machine a node: one for all, as they all read the same files. Pure."""

import base64
import shlex
import textwrap
from importlib.resources import files

from heliostat.provision.slurm.configuration import MARK, SLURMD_UNIT, shared_files, slurmd_unit
from heliostat.provision.slurm.description import Description
from heliostat.provision.slurm.layout import Layout

# Never a line of the files: all of theirs hold "=", begin with "#" or "[", or are empty.
_END = "END_OF_FILE_OF_HELIOSTAT"


def node_script(described: Description, layout: Layout, key: bytes | None = None) -> str:
    """With the key of munge in it, if it is given: then it is as secret as the key."""
    values = {
        "prefix": layout.prefix,
        "conf": layout.conf_folder,
        "unit": f"{layout.unit_folder}/{SLURMD_UNIT}",
        "key": layout.key,
        "spool": layout.spool,
        "logs": layout.logs,
        "mark": MARK,
        "hosts": " ".join(dict.fromkeys(machine.hostname for machine in described.machines)),
        "nodes": " ".join(f"{machine.hostname}={machine.name}" for machine in described.machines),
    }
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    steps = files(__package__).joinpath("node.sh").read_text(encoding="utf-8")
    return f"#!/bin/sh\n{head}{steps}\n{_main(described, layout, key)}"


def _main(described: Description, layout: Layout, key: bytes | None) -> str:
    """A function that is called in the last line: a script that was cut off on its way does nothing."""
    texts = {f"$conf/{name}": text for name, text in shared_files(described, layout).items()}
    if not layout.prefix:
        texts["$unit"] = slurmd_unit()
    puts = [f"place \"{path}\" 644 root: <<'{_END}'\n{text}{_END}\n" for path, text in texts.items()]
    lines = ["main() {\ncheck\npackages\nfolders\n", *puts, _key(key), "services\n"]
    last = '[ -n "$changed" ] && say "done" || say "nothing to change"\n}\nmain\n'
    return "".join(lines) + last


def _key(key: bytes | None) -> str:
    if key is None:
        return "have_key\n"
    coded = "\n".join(textwrap.wrap(base64.b64encode(key).decode("ascii"), 76))
    return f"place \"$key\" 400 munge: decoded <<'{_END}'\n{coded}\n{_END}\n"
