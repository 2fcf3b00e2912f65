"""Renders slurm.conf, gres.conf, cgroup.conf, slurmdbd.conf and the script that sets up a node. Pure."""

import base64
import shlex
import textwrap
from collections.abc import Mapping
from importlib.resources import files

from heliostat.provision.managed_files import with_header
from heliostat.provision.slurm.cluster_spec import ClusterSpec, NodeSpec, PartitionSpec
from heliostat.provision.slurm.paths import SlurmPaths

FILE_HEADER = "# Made by Heliostat (helio slurm setup). Change nodes.toml and apply it, not this file."
DATABASE_NAME, DATABASE_USER = "slurm_acct_db", "slurm"
# Heliostat's default prices times 100: per hour 1 for a GPU, 0.02 for a cpu, 0.002 for a GiB; Slurm rounds down.
_BILLING = "CPU=2,Mem=0.2G,GRES/gpu=100"
# At boot, slurmd may give up before the device files of GPUs exist; nvidia-smi creates them.
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
# Never a line of the files: their lines contain "=", begin with "#" or "[", or are empty.
_END = "END_OF_FILE_OF_HELIOSTAT"


def render_shared_files(spec: ClusterSpec, paths: SlurmPaths) -> dict[str, str]:
    """The files that are the same on all nodes, by name."""
    return {
        "slurm.conf": with_header(FILE_HEADER, _slurm_conf(spec, paths)),
        "gres.conf": with_header(FILE_HEADER, _gres_conf(spec)),
        "cgroup.conf": with_header(FILE_HEADER, _lines(_CGROUP)),
    }


def render_slurmd_unit() -> str:
    """A systemd drop-in for the slurmd unit of every node."""
    return with_header(FILE_HEADER, _SLURMD_UNIT)


def render_slurmdbd_conf(spec: ClusterSpec, paths: SlurmPaths, password: str) -> str:
    """Only for the controller; only the user slurm may read it."""
    return with_header(
        FILE_HEADER,
        _lines(
            {
                "AuthType": "auth/munge",
                "AuthInfo": f"socket={paths.munge_socket}",
                "DbdHost": spec.controller,
                "DbdAddr": spec.controller_address or spec.controller,
                "DbdPort": spec.ports.accounting,
                "SlurmUser": "slurm",
                "DebugLevel": "info",
                "LogFile": f"{paths.log_folder}/slurmdbd.log",
                "PidFile": f"{paths.run_folder}/slurmdbd.pid",
                "StorageType": "accounting_storage/mysql",
                "StorageHost": "127.0.0.1",
                "StoragePort": spec.ports.database,
                "StorageLoc": DATABASE_NAME,
                "StorageUser": DATABASE_USER,
                "StoragePass": password,
            }
        ),
    )


def _slurm_conf(spec: ClusterSpec, paths: SlurmPaths) -> str:
    settings = {**_cluster_settings(spec, paths), **_path_settings(paths), **_behaviour_settings(spec)}
    ours = {key.lower(): key for key in settings}
    for key, value in spec.settings.items():
        settings[ours.get(key.lower(), key)] = value
    nodes = "".join(f"{_node(node)}\n" for node in spec.nodes)
    return _lines(settings) + nodes + "".join(f"{_partition(part)}\n" for part in spec.partitions)


def _cluster_settings(spec: ClusterSpec, paths: SlurmPaths) -> dict[str, object]:
    address = f"({spec.controller_address})" if spec.controller_address else ""
    return {
        "ClusterName": spec.cluster,
        "SlurmctldHost": spec.controller + address,
        "SlurmctldPort": spec.ports.controller,
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        # A requeued job waits for this time; Slurm's default of 120 s is long.
        "AuthInfo": f"socket={paths.munge_socket},cred_expire=30",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": spec.controller_address or spec.controller,
        "AccountingStoragePort": spec.ports.accounting,
        "AccountingStoragePass": paths.munge_socket,
        "AccountingStorageTRES": "gres/gpu",
        "AccountingStorageEnforce": "associations,qos,limits",
    }


def _path_settings(paths: SlurmPaths) -> dict[str, object]:
    """With a prefix, several slurmd share a machine: each has its own files."""
    suffix = "-%n" if paths.prefix else ""
    return {
        "StateSaveLocation": paths.controller_state_folder,
        "SlurmdSpoolDir": paths.slurmd_spool_folder + ("/%n" if paths.prefix else ""),
        "SlurmctldPidFile": f"{paths.run_folder}/slurmctld.pid",
        "SlurmdPidFile": f"{paths.run_folder}/slurmd{suffix}.pid",
        "SlurmctldLogFile": f"{paths.log_folder}/slurmctld.log",
        "SlurmdLogFile": f"{paths.log_folder}/slurmd{suffix}.log",
    }


def _behaviour_settings(spec: ClusterSpec) -> dict[str, object]:
    return {
        "ReturnToService": 2,  # a node that registers with a valid configuration is used again
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/cgroup,task/affinity",
        "PropagateResourceLimits": "NONE",  # limits of the submitting process do not apply on nodes
        "MpiDefault": "none",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": 30,
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "GresTypes": "gpu",
        "DefMemPerCPU": min(node.memory_mib // node.cpus for node in spec.nodes) or 1,
        "EnforcePartLimits": "ANY",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "bf_continue,bf_window=10080,bf_resolution=300,bf_max_job_test=1000",
        "PriorityType": "priority/multifactor",  # with fair tree, Slurm's default
        "PriorityDecayHalfLife": "7-0",
        "PriorityMaxAge": "7-0",
        "PriorityWeightFairshare": 100000,
        "PriorityWeightQOS": 50000,
        "PriorityWeightAge": 10000,
        "PreemptType": "preempt/qos",  # required by the priority classes of `helio slurm apply`
        "PreemptMode": "CANCEL",
        "MaxArraySize": 100001,
        "MaxJobCount": 100000,
        "MinJobAge": 300,
    }


def _node(node: NodeSpec) -> str:
    gres = ",".join(f"gpu:{gpus.type}:{gpus.count}" for gpus in node.gpus)
    values: dict[str, object] = {
        "NodeName": node.name,
        "NodeHostname": node.configured_hostname,
        "NodeAddr": node.address,
        "Port": node.port or "",
        "CPUs": node.cpus,
        "Sockets": node.sockets,
        "CoresPerSocket": node.cores_per_socket,
        "ThreadsPerCore": node.threads_per_core,
        "RealMemory": node.memory_mib,
        "Gres": gres,
        "Feature": ",".join(node.features),
    }
    return " ".join(f"{key}={value}" for key, value in values.items() if value != "")


def _partition(partition: PartitionSpec) -> str:
    values = {
        "PartitionName": partition.name,
        "Nodes": ",".join(partition.nodes) or "ALL",
        "Default": "YES" if partition.is_default else "NO",
        "MaxTime": partition.max_minutes or "INFINITE",
        "TRESBillingWeights": f'"{_BILLING}"',
        "State": "UP",
    }
    return " ".join(f"{key}={value}" for key, value in values.items())


def _gres_conf(spec: ClusterSpec) -> str:
    lines = [
        f"NodeName={node.name} Name=gpu Type={gpus.type} File={','.join(gpus.device_files)}\n"
        for node in spec.nodes
        for gpus in node.gpus
    ]
    return "AutoDetect=off\n" + "".join(lines)


def _lines(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def render_node_script(spec: ClusterSpec, paths: SlurmPaths, key: bytes | None = None) -> str:
    """A shell script. If it contains the munge key, it is as secret as the key."""
    values = {
        "prefix": paths.prefix,
        "conf": paths.config_folder,
        "unit": f"{paths.unit_folder}/{SLURMD_UNIT_FILE}",
        "key": paths.munge_key,
        "spool": paths.slurmd_spool_folder,
        "logs": paths.log_folder,
        "mark": FILE_HEADER,
        "hosts": " ".join(dict.fromkeys(node.hostname for node in spec.nodes)),
        "nodes": " ".join(f"{node.hostname}={node.name}" for node in spec.nodes),
    }
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    steps = files(__package__).joinpath("node.sh").read_text(encoding="utf-8")
    return f"#!/bin/sh\n{head}{steps}\n{_main(spec, paths, key)}"


def _main(spec: ClusterSpec, paths: SlurmPaths, key: bytes | None) -> str:
    """A function that the last line calls: a truncated script does nothing."""
    texts = {f"$conf/{name}": text for name, text in render_shared_files(spec, paths).items()}
    if not paths.prefix:
        texts["$unit"] = render_slurmd_unit()
    puts = [f"place \"{path}\" 644 root: <<'{_END}'\n{text}{_END}\n" for path, text in texts.items()]
    lines = ["main() {\ncheck\npackages\nfolders\n", *puts, _key(key), "services\n"]
    last = '[ -n "$changed" ] && say "done" || say "nothing to change"\n}\nmain\n'
    return "".join(lines) + last


def _key(key: bytes | None) -> str:
    if key is None:
        return "have_key\n"
    encoded = "\n".join(textwrap.wrap(base64.b64encode(key).decode("ascii"), 76))
    return f"place \"$key\" 400 munge: decoded <<'{_END}'\n{encoded}\n{_END}\n"
