"""All commands in one place: what each is for and which module holds it.

`helio --help` is printed from here, and a command's module is imported only when it is the one to run.
"""

from typing import NamedTuple


class CommandEntry(NamedTuple):
    name: str
    entry_point: str  # module:attribute
    summary: str


COMMAND_SECTIONS: dict[str, tuple[CommandEntry, ...]] = {
    "Submit": (
        CommandEntry("run", "run:run", "Put a command into the queue."),
        CommandEntry(
            "notebook", "notebooks:notebook", "JupyterLab on the cluster; or a notebook as a job: notebook run."
        ),
        CommandEntry(
            "session", "sessions:session", "Interactive sessions: JupyterLab, or a web server of your own."
        ),
        CommandEntry(
            "service", "services:service", "Web servers that stay up, as several replicas behind one address."
        ),
        CommandEntry("submit", "submit:submit", "Put the jobs of a YAML or JSON file into the queue."),
        CommandEntry("rerun", "rerun:rerun", "Repeat a job: the same request, the same code."),
        CommandEntry("env", "environments:env", "The software of jobs, built once."),
        CommandEntry("image", "images:image", "Images of your own: build, push, use."),
        CommandEntry("schedule", "schedules:schedule", "Submit a job again and again, at times or after others."),
        CommandEntry("workflow", "workflows:workflow", "Jobs that need one another, from one file."),
        CommandEntry("sweep", "sweeps:sweep", "One command over many values, and what came of each."),
    ),
    "Watch": (
        CommandEntry("ps", "jobs:ps", "List jobs, newest first."),
        CommandEntry("show", "jobs:show", "Show everything about one job."),
        CommandEntry("diff", "rerun:diff", "Say what differed between two jobs."),
        CommandEntry("why", "queue:why", "Say why a job waits, and when it will start."),
        CommandEntry("when", "queue:when", "Say when a job would start, before submitting it."),
        CommandEntry("logs", "logs:logs", "Print what a job has printed."),
        CommandEntry("results", "jobs:results", "Fetch what a job left in its folder results."),
        CommandEntry("wait", "events:wait", "Wait until jobs are over."),
        CommandEntry("events", "events:events", "Show what happened to jobs."),
        CommandEntry("top", "top:top", "Watch the cluster live."),
        CommandEntry("web", "web:web", "Open the cluster in your browser."),
        CommandEntry("stats", "stats:stats", "Show what a job, a machine or the cluster used over time."),
        CommandEntry("announcement", "announcements:announcement", "Messages from the admins to all users."),
        CommandEntry(
            "notification", "notifications:notification", "Messages about your jobs by e-mail, chat or webhook."
        ),
        CommandEntry("share", "queue:share", "Show who is entitled to what, and has used how much of it."),
        CommandEntry("report", "queue:report", "Show who used what in a month."),
    ),
    "Change": (
        CommandEntry("cancel", "jobs:cancel", "Stop jobs."),
        CommandEntry("hold", "jobs:hold", "Keep waiting jobs from starting."),
        CommandEntry("release", "jobs:release", "Let held jobs start again."),
        CommandEntry("requeue", "jobs:requeue", "Stop running jobs and queue them again."),
        CommandEntry("exec", "exec:execute", "Run a command inside a running job."),
        CommandEntry("extend", "jobs:extend", "Give a running or waiting session more time."),
        CommandEntry("port", "web:port", "Open a port of a running job in your browser."),
        CommandEntry(
            "ssh", "exec:ssh", "Open a shell inside a running job, or run a command there on a terminal."
        ),
        CommandEntry("report-metric", "sweeps:report_metric", "Report a metric of the job it is called from."),
        CommandEntry("checkpointed", "jobs:checkpointed", "Say that a running job has saved its work."),
    ),
    "Machines": (
        CommandEntry("nodes", "nodes:nodes", "List machines, their GPUs and what is free."),
        CommandEntry("node", "nodes:node", "Show, set or drain a machine, or use it again."),
        CommandEntry(
            "reservation", "reservations:reservation", "Nodes set aside for a course, a deadline, or maintenance."
        ),
        CommandEntry("slurm", "slurm:slurm", "Slurm's accounts, kept in step with ours; and a Slurm of your own."),
        CommandEntry("doctor", "doctor:doctor", "Find out what is wrong and what to do about it."),
    ),
    "Plan": (
        CommandEntry(
            "simulate", "simulate:simulate", "Replay past jobs on made-up machines, under one policy or several."
        ),
        CommandEntry("history", "history:history", "Past jobs, to be replayed."),
    ),
    "People": (
        CommandEntry("whoami", "login:whoami", "Show who the server thinks you are."),
        CommandEntry("login", "login:login", "Log in to a server elsewhere."),
        CommandEntry("logout", "login:logout", "Forget the login."),
        CommandEntry("token", "login:token", "Personal tokens for scripts and other machines."),
        CommandEntry("user", "users:user", "Accounts."),
        CommandEntry("project", "projects:project", "Projects, their members, shares and quotas."),
        CommandEntry("department", "projects:department", "Departments and their shares."),
        CommandEntry("audit", "users:audit", "Show who did what."),
    ),
    "Server": (
        CommandEntry("up", "server:up", "Start Heliostat on this machine."),
        CommandEntry("down", "server:down", "Stop Heliostat; running jobs go on."),
        CommandEntry("status", "server:status", "Show whether Heliostat is running."),
        CommandEntry("config", "config:config", "The settings of this machine: check, show, explain."),
        CommandEntry("migrate", "migrate:migrate", "Move from this machine alone to Slurm."),
        CommandEntry("demo", "server:demo", "Try a throw-away cluster of 40 nodes and 100 GPUs."),
    ),
}

COMMANDS = {entry.name: entry for entries in COMMAND_SECTIONS.values() for entry in entries}


def root_help_text() -> str:
    """The text of `helio --help`."""
    lines = ["Usage: helio COMMAND [OPTIONS]", "", "One queue for the GPUs of a lab.", ""]
    for title, entries in COMMAND_SECTIONS.items():
        lines += [f"{title}:", *(f"  {entry.name:<14}{entry.summary}" for entry in entries), ""]
    lines += [
        "helio COMMAND --help says more about one; --json prints what programs can read.",
        "Start here: helio up --background, then helio run --follow -- nvidia-smi",
    ]
    return "\n".join(lines)
