"""The Python client: `Client().submit("python train.py", gpus=1).wait()`. Uses only the standard library."""

from heliostat.client.api_types import JobEventData, JobFields, LogChunk, LogEnd, LogSlice, LogWait
from heliostat.client.client import Client
from heliostat.client.event_stream import ServerSentEvent
from heliostat.client.jobs import JobArray, JobHandle
from heliostat.client.nodes import Node
from heliostat.client.sessions import SessionHandle
from heliostat.client.sweeps import SweepHandle
from heliostat.client.workflow_builder import Workflow, WorkflowStep
from heliostat.client.workflows import WorkflowHandle

__all__ = [
    "Client",
    "JobArray",
    "JobEventData",
    "JobFields",
    "JobHandle",
    "LogChunk",
    "LogEnd",
    "LogSlice",
    "LogWait",
    "Node",
    "ServerSentEvent",
    "SessionHandle",
    "SweepHandle",
    "Workflow",
    "WorkflowHandle",
    "WorkflowStep",
]
