"""The Python client: `Client().submit("python train.py", gpus=1).wait()`. Needs the standard library only."""

from heliostat.client.client import Client
from heliostat.client.events import ServerEvent
from heliostat.client.jobs import JobArray, JobHandle
from heliostat.client.nodes import Node
from heliostat.client.shapes import Event, JobFields, LogChunk, LogEnd, LogPart
from heliostat.client.workflow import Workflow, WorkflowStep

__all__ = [
    "Client",
    "Event",
    "JobArray",
    "JobFields",
    "JobHandle",
    "LogChunk",
    "LogEnd",
    "LogPart",
    "Node",
    "ServerEvent",
    "Workflow",
    "WorkflowStep",
]
