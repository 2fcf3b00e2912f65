"""The systems that are compared. Each is one class with the same verbs; see `Peer`."""

from bench.peers.contract import FirstLine, Peer, PeerFailed
from bench.peers.heliostat import Heliostat
from bench.peers.hyperqueue import HyperQueue
from bench.peers.slurm import Slurm
from bench.peers.taskspooler import TaskSpooler

__all__ = ["PEERS", "FirstLine", "Peer", "PeerFailed"]

PEERS: tuple[type[Peer], ...] = (Heliostat, TaskSpooler, HyperQueue, Slurm)
