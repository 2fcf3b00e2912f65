"""The texts of slurm.conf, gres.conf, cgroup.conf and slurmdbd.conf, and the script that makes a machine a node.

Pure. A mark and a digest at their top tell which files we made, and whether somebody has changed them since.
"""

import base64
import hashlib
import shlex
import textwrap
from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files

from heliostat.provision.slurm.cluster_spec import ClusterSpec, NodeSpec, PartitionSpec
from heliostat.provision.slurm.paths import SlurmPaths

FILE_HEADER = "# Made by Heliostat (helio slurm setup). Change nodes.toml and apply it, not this file."
_DIGEST = "# sha256 of the rest: "
DATABASE_NAME, DATABASE_USER = "slurm_acct_db", "slurm"
# As Heliostat charges by default: an hour of a GPU 1, of a cpu 0.02, of a GiB of memory 0.002; Slurm rounds down.
_BILLING = "CPU=2,Mem=0.2G,GRES/gpu=100"
# At boot the files of GPUs may come later than slurmd waits for them; asked for, NVIDIA's tool makes them.
_SLURMD_UNIT = """\
[Unit]
After=nvidia-persistenced.service
StartLimitIntervalSec=0

[Service]
ExecStartPre=-/usr/bin/nvidia-smi -L
Restart=on-failure
RestartSec=10
"""
SLURMD_UNIT_FILE = "heliostat-slurmd.conf"
_CGROUP = {"ConstrainCores": "yes", "ConstrainRAMSpace": "yes", "ConstrainDevices": "yes"}
# Never a line of the files: all of theirs hold "=", begin with "#" or "[", or are empty.
_END = "END_OF_FILE_OF_HELIOSTAT"


def render_shared_files(described: ClusterSpec, layout: SlurmPaths) -> dict[str, str]:
    """By name: those that are the same on all machines."""
    return {
        "slurm.conf": with_header(_slurm_conf(described, layout)),
        "gres.conf": with_header(_gres_conf(described)),
        "cgroup.conf": with_header(_lines(_CGROUP)),
    }


def render_slurmd_unit() -> str:
    """For systemd on every node, beside the unit of the package."""
    return with_header(_SLURMD_UNIT)


def render_slurmdbd_conf(described: ClusterSpec, layout: SlurmPaths, password: str) -> str:
    """For the controller alone, to be read by the user slurm alone."""
    return with_header(
        _lines(
            {
                "AuthType": "auth/munge",
                "AuthInfo": f"socket={layout.munge_socket}",
                "DbdHost": described.controller,
                "DbdAddr": described.controller_address or described.controller,
                "DbdPort": described.ports.accounting,
                "SlurmUser": "slurm",
                "DebugLevel": "info",
                "LogFile": f"{layout.log_folder}/slurmdbd.log",
                "PidFile": f"{layout.run_folder}/slurmdbd.pid",
                "StorageType": "accounting_storage/mysql",
                "StorageHost": "127.0.0.1",
                "StoragePort": described.ports.database,
                "StorageLoc": DATABASE_NAME,
                "StorageUser": DATABASE_USER,
                "StoragePass": password,
            }
        )
    )


def _slurm_conf(described: ClusterSpec, layout: SlurmPaths) -> str:
    settings = {**_who(described, layout), **_places(layout), **_manners(described)}
    ours = {key.lower(): key for key in settings}
    for key, value in described.settings.items():
        settings[ours.get(key.lower(), key)] = value
    nodes = "".join(f"{_node(machine)}\n" for machine in described.nodes)
    return _lines(settings) + nodes + "".join(f"{_partition(one)}\n" for one in described.partitions)


def _who(described: ClusterSpec, layout: SlurmPaths) -> dict[str, object]:
    address = f"({described.controller_address})" if described.controller_address else ""
    return {
        "ClusterName": described.cluster,
        "SlurmctldHost": described.controller + address,
        "SlurmctldPort": described.ports.controller,
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        # A job that is queued again waits for so many seconds: Slurm's own 120 are long.
        "AuthInfo": f"socket={layout.munge_socket},cred_expire=30",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": described.controller_address or described.controller,
        "AccountingStoragePort": described.ports.accounting,
        "AccountingStoragePass": layout.munge_socket,
        "AccountingStorageTRES": "gres/gpu",
        "AccountingStorageEnforce": "associations,qos,limits",
    }


def _places(layout: SlurmPaths) -> dict[str, object]:
    """Below one folder several slurmd are on one machine: each has files of its own."""
    each = "-%n" if layout.prefix else ""
    return {
        "StateSaveLocation": layout.controller_state_folder,
        "SlurmdSpoolDir": layout.slurmd_spool_folder + ("/%n" if layout.prefix else ""),
        "SlurmctldPidFile": f"{layout.run_folder}/slurmctld.pid",
        "SlurmdPidFile": f"{layout.run_folder}/slurmd{each}.pid",
        "SlurmctldLogFile": f"{layout.log_folder}/slurmctld.log",
        "SlurmdLogFile": f"{layout.log_folder}/slurmd{each}.log",
    }


def _manners(described: ClusterSpec) -> dict[str, object]:
    return {
        "ReturnToService": 2,  # a machine that comes back in order is used again
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/cgroup,task/affinity",
        "PropagateResourceLimits": "NONE",  # the limits of who submits say nothing about a node
        "MpiDefault": "none",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": 30,
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "GresTypes": "gpu",
        "DefMemPerCPU": min(machine.memory_mib // machine.cpus for machine in described.nodes) or 1,
        "EnforcePartLimits": "ANY",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "bf_continue,bf_window=10080,bf_resolution=300,bf_max_job_test=1000",
        "PriorityType": "priority/multifactor",  # by its fair tree, which is Slurm's default
        "PriorityDecayHalfLife": "7-0",
        "PriorityMaxAge": "7-0",
        "PriorityWeightFairshare": 100000,
        "PriorityWeightQOS": 50000,
        "PriorityWeightAge": 10000,
        "PreemptType": "preempt/qos",  # as the classes of `helio slurm apply` want it
        "PreemptMode": "CANCEL",
        "MaxArraySize": 100001,
        "MaxJobCount": 100000,
        "MinJobAge": 300,
    }


def _node(machine: NodeSpec) -> str:
    gres = ",".join(f"gpu:{gpus.type}:{gpus.count}" for gpus in machine.gpus)
    words: dict[str, object] = {
        "NodeName": machine.name,
        "NodeHostname": machine.configured_hostname,
        "NodeAddr": machine.address,
        "Port": machine.port or "",
        "CPUs": machine.cpus,
        "Sockets": machine.sockets,
        "CoresPerSocket": machine.cores_per_socket,
        "ThreadsPerCore": machine.threads_per_core,
        "RealMemory": machine.memory_mib,
        "Gres": gres,
        "Feature": ",".join(machine.features),
    }
    return " ".join(f"{key}={value}" for key, value in words.items() if value != "")


def _partition(one: PartitionSpec) -> str:
    words = {
        "PartitionName": one.name,
        "Nodes": ",".join(one.nodes) or "ALL",
        "Default": "YES" if one.is_default else "NO",
        "MaxTime": one.max_minutes or "INFINITE",
        "TRESBillingWeights": f'"{_BILLING}"',
        "State": "UP",
    }
    return " ".join(f"{key}={value}" for key, value in words.items())


def _gres_conf(described: ClusterSpec) -> str:
    lines = [
        f"NodeName={machine.name} Name=gpu Type={gpus.type} File={','.join(gpus.device_files)}\n"
        for machine in described.nodes
        for gpus in machine.gpus
    ]
    return "AutoDetect=off\n" + "".join(lines)


def _lines(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


class FileOrigin(StrEnum):
    OURS = "ours"
    CHANGED = "changed"  # ours once, and somebody has edited it
    FOREIGN = "foreign"


def with_header(body: str) -> str:
    return f"{FILE_HEADER}\n{_DIGEST}{_digest(body)}\n{body}"


def detect_origin(text: str) -> FileOrigin:
    mark, _, rest = text.partition("\n")
    digest, _, body = rest.partition("\n")
    if mark != FILE_HEADER or not digest.startswith(_DIGEST):
        return FileOrigin.FOREIGN
    return FileOrigin.OURS if digest == _DIGEST + _digest(body) else FileOrigin.CHANGED


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8")).hexdigest()


def render_node_script(described: ClusterSpec, layout: SlurmPaths, key: bytes | None = None) -> str:
    """With the key of munge in it, if it is given: then it is as secret as the key."""
    values = {
        "prefix": layout.prefix,
        "conf": layout.config_folder,
        "unit": f"{layout.unit_folder}/{SLURMD_UNIT_FILE}",
        "key": layout.munge_key,
        "spool": layout.slurmd_spool_folder,
        "logs": layout.log_folder,
        "mark": FILE_HEADER,
        "hosts": " ".join(dict.fromkeys(machine.hostname for machine in described.nodes)),
        "nodes": " ".join(f"{machine.hostname}={machine.name}" for machine in described.nodes),
    }
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    steps = files(__package__).joinpath("node.sh").read_text(encoding="utf-8")
    return f"#!/bin/sh\n{head}{steps}\n{_main(described, layout, key)}"


def _main(described: ClusterSpec, layout: SlurmPaths, key: bytes | None) -> str:
    """A function that is called in the last line: a script that was cut off on its way does nothing."""
    texts = {f"$conf/{name}": text for name, text in render_shared_files(described, layout).items()}
    if not layout.prefix:
        texts["$unit"] = render_slurmd_unit()
    puts = [f"place \"{path}\" 644 root: <<'{_END}'\n{text}{_END}\n" for path, text in texts.items()]
    lines = ["main() {\ncheck\npackages\nfolders\n", *puts, _key(key), "services\n"]
    last = '[ -n "$changed" ] && say "done" || say "nothing to change"\n}\nmain\n'
    return "".join(lines) + last


def _key(key: bytes | None) -> str:
    if key is None:
        return "have_key\n"
    coded = "\n".join(textwrap.wrap(base64.b64encode(key).decode("ascii"), 76))
    return f"place \"$key\" 400 munge: decoded <<'{_END}'\n{coded}\n{_END}\n"
