"""The demo cluster: synthetic users, projects and jobs. Deterministic: the same seed gives the same data."""

from heliostat.demo.accounts import DEPARTMENTS, PROJECTS, USERS, DemoProject, DemoUser
from heliostat.demo.jobs import DemoJob
from heliostat.demo.workload import generate_history, generate_jobs_of_day, generate_live_jobs

__all__ = [
    "DEPARTMENTS",
    "PROJECTS",
    "USERS",
    "DemoJob",
    "DemoProject",
    "DemoUser",
    "generate_history",
    "generate_jobs_of_day",
    "generate_live_jobs",
]
