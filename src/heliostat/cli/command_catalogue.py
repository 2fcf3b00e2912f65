"""The catalogue of `helio` commands: section, name, entry point and summary.

`helio --help` is printed from it; the module of a command is imported only when the command runs.
"""

from typing import NamedTuple


class CommandEntry(NamedTuple):
    name: str
    entry_point: str  # module:attribute
    summary: str


COMMAND_SECTIONS: dict[str, tuple[CommandEntry, ...]] = {
    "Submit": (
        CommandEntry("run", "run:run", "Submit a command as a job."),
        CommandEntry("notebook", "notebooks:notebook", "Start JupyterLab, or run a notebook as a job."),
        CommandEntry("session", "sessions:session", "Interactive sessions: JupyterLab, VS Code, any web server."),
        CommandEntry("service", "services:service", "Long-running web services with replicas behind one address."),
        CommandEntry("submit", "submit:submit", "Submit the jobs in a YAML or JSON file, or a script."),
        CommandEntry("rerun", "rerun:rerun", "Submit a job again with the same request and code."),
        CommandEntry("env", "environments:env", "Software environments for jobs, built once and cached."),
        CommandEntry("image", "images:image", "Your container images: build, push, use."),
        CommandEntry(
            "schedule", "schedules:schedule", "Submit a job repeatedly, at set times or after other schedules."
        ),
        CommandEntry("workflow", "workflows:workflow", "Jobs with dependencies, from one file."),
        CommandEntry("sweep", "sweeps:sweep", "Run one command with many parameter values."),
    ),
    "Watch": (
        CommandEntry("ps", "jobs:ps", "List jobs, newest first."),
        CommandEntry("show", "jobs:show", "Show all details of a job."),
        CommandEntry("diff", "diff:diff", "Show the differences between two jobs."),
        CommandEntry("why", "why_and_when:why", "Explain why a job is waiting and when it will start."),
        CommandEntry("when", "why_and_when:when", "Forecast when a job would start, before submitting it."),
        CommandEntry("logs", "logs:logs", "Print the output of jobs."),
        CommandEntry("results", "results:results", "Download the results folder of a job."),
        CommandEntry("wait", "wait:wait", "Wait until jobs have ended."),
        CommandEntry("events", "events:events", "Show the events of jobs."),
        CommandEntry("top", "top:top", "Watch the cluster live."),
        CommandEntry("web", "web:web", "Open the web interface in your browser."),
        CommandEntry("stats", "stats:stats", "Show the resource usage of a job, a node or the cluster."),
        CommandEntry(
            "efficiency", "efficiency:efficiency", "Show what jobs used, and what would have been enough."
        ),
        CommandEntry("announcement", "announcements:announcement", "Messages from the admins to all users."),
        CommandEntry(
            "notification", "notifications:notification", "Messages about your jobs by e-mail, chat or webhook."
        ),
        CommandEntry(
            "share", "share:share", "Show fair shares and recent usage, or what was delivered since a day."
        ),
        CommandEntry(
            "report", "report:report", "Show the usage or the waste of a period by project, user or department."
        ),
    ),
    "Change": (
        CommandEntry("cancel", "jobs:cancel", "Cancel jobs."),
        CommandEntry("hold", "jobs:hold", "Prevent waiting jobs from starting."),
        CommandEntry("release", "jobs:release", "Allow held jobs to start."),
        CommandEntry("requeue", "jobs:requeue", "Stop running jobs and queue them again."),
        CommandEntry("exec", "exec:execute", "Run a command inside a running job."),
        CommandEntry("extend", "jobs:extend", "Extend the time limit of a running or waiting session."),
        CommandEntry("keep", "jobs:keep", "Answer that a running job needs its idle GPUs."),
        CommandEntry("port", "port:port", "Open a port of a running job in your browser."),
        CommandEntry("ssh", "exec:ssh", "Open a shell inside a running job."),
        CommandEntry("report-metric", "report_metric:report_metric", "Report a metric from inside a job."),
        CommandEntry("checkpointed", "jobs:checkpointed", "Record that a running job has saved its work."),
    ),
    "Nodes": (
        CommandEntry("nodes", "nodes:nodes", "List nodes, their GPUs and their free resources."),
        CommandEntry("node", "nodes:node", "Show, change, drain or resume a node."),
        CommandEntry(
            "reservation", "reservations:reservation", "Nodes reserved for a project or for maintenance."
        ),
        CommandEntry("slurm", "slurm:slurm", "Synchronize accounts with Slurm, or set up a Slurm cluster."),
        CommandEntry("monitoring", "monitoring:monitoring", "Set up Prometheus, Alertmanager and Grafana."),
        CommandEntry("doctor", "doctor:doctor", "Check the installation and suggest fixes."),
    ),
    "Plan": (
        CommandEntry(
            "simulate",
            "simulate:simulate",
            "Replay past jobs on a simulated cluster to compare policies, or on several to compare clusters.",
        ),
        CommandEntry("history", "history:history", "Past jobs: export them, or import them from Slurm."),
    ),
    "Accounts": (
        CommandEntry("whoami", "login:whoami", "Show your account on the server."),
        CommandEntry("login", "login:login", "Log in to a remote server."),
        CommandEntry("logout", "login:logout", "Log out: revoke and delete the stored token."),
        CommandEntry("token", "tokens:token", "Personal access tokens for scripts and other machines."),
        CommandEntry("user", "users:user", "User accounts."),
        CommandEntry("project", "projects:project", "Projects, their members, shares and quotas."),
        CommandEntry("department", "departments:department", "Departments and their shares."),
        CommandEntry("audit", "audit:audit", "Show the audit log."),
    ),
    "Server": (
        CommandEntry("up", "server:up", "Start Heliostat on this machine."),
        CommandEntry("down", "server:down", "Stop Heliostat; running jobs continue."),
        CommandEntry("status", "server:status", "Show whether Heliostat is running."),
        CommandEntry("metrics", "metrics:metrics", "Print the metrics that Prometheus collects."),
        CommandEntry("resume", "resume:resume", "End the pause of a server."),
        CommandEntry("backup", "backup:backup", "Back up the database, keys and settings; restore them."),
        CommandEntry("config", "config:config", "Check, show and explain the settings of this server."),
        CommandEntry("migrate", "migrate:migrate", "Migrate from the local engine to Slurm."),
        CommandEntry("demo", "demo:demo", "Start a temporary demo cluster: 40 simulated nodes, 100 GPUs."),
    ),
}

COMMANDS = {entry.name: entry for entries in COMMAND_SECTIONS.values() for entry in entries}


def root_help_text() -> str:
    """The text of `helio --help`."""
    lines = ["Usage: helio COMMAND [OPTIONS]", "", "One job queue for all GPUs of a research group.", ""]
    for title, entries in COMMAND_SECTIONS.items():
        lines += [f"{title}:", *(f"  {entry.name:<14}{entry.summary}" for entry in entries), ""]
    lines += [
        "helio COMMAND --help describes a command. --json prints output for programs.",
        "First steps: helio up --background, then helio run --follow -- nvidia-smi",
    ]
    return "\n".join(lines)
