"""The systems that are compared. Each is one class with the same verbs; see `Peer`."""

from bench.peers.contract import FirstLine, GpuPeer, Peer, PeerFailed
from bench.peers.heliostat import Heliostat
from bench.peers.hyperqueue import HyperQueue
from bench.peers.slurm import Slurm
from bench.peers.taskspooler import TaskSpooler
from bench.settings import GPU_COUNT

__all__ = ["FirstLine", "GpuPeer", "Peer", "PeerFailed", "gpu_peers", "peers"]


def peers() -> list[Peer]:
    """All of them, for jobs that need a core."""
    return [Heliostat(), TaskSpooler(), HyperQueue(), Slurm()]


def gpu_peers() -> list[GpuPeer]:
    """For jobs that need a GPU. task-spooler knows no GPUs; HyperQueue's `LocalCluster` gives its worker none."""
    return [Heliostat(gpus=GPU_COUNT), Slurm(gpus=GPU_COUNT)]
