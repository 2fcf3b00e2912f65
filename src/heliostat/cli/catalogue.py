"""All commands in one place: what each is for and which module holds it.

`helio --help` is printed from here, and a command's module is imported only when it is the one to run.
"""

from typing import NamedTuple


class Entry(NamedTuple):
    name: str
    place: str  # module:attribute
    summary: str


SECTIONS: dict[str, tuple[Entry, ...]] = {
    "Submit": (
        Entry("run", "run:run", "Put a command into the queue."),
        Entry("notebook", "notebook:notebook", "JupyterLab on the cluster; or a notebook as a job: notebook run."),
        Entry("session", "session:session", "Interactive sessions: JupyterLab, or a web server of your own."),
        Entry("service", "service:service", "Web servers that stay up, as several replicas behind one address."),
        Entry("submit", "submit:submit", "Put the jobs of a YAML or JSON file into the queue."),
        Entry("rerun", "rerun:rerun", "Repeat a job: the same request, the same code."),
        Entry("env", "env:env", "The software of jobs, built once."),
        Entry("image", "image:image", "Images of your own: build, push, use."),
        Entry("schedule", "schedules:schedule", "Submit a job again and again, at times or after others."),
        Entry("workflow", "workflow:workflow", "Jobs that need one another, from one file."),
        Entry("sweep", "sweep:sweep", "One command over many values, and what came of each."),
    ),
    "Watch": (
        Entry("ps", "jobs:ps", "List jobs, newest first."),
        Entry("show", "jobs:show", "Show everything about one job."),
        Entry("diff", "rerun:diff", "Say what differed between two jobs."),
        Entry("why", "queue:why", "Say why a job waits, and when it will start."),
        Entry("when", "queue:when", "Say when a job would start, before submitting it."),
        Entry("logs", "logs:logs", "Print what a job has printed."),
        Entry("results", "jobs:results", "Fetch what a job left in its folder results."),
        Entry("wait", "watch:wait", "Wait until jobs are over."),
        Entry("events", "watch:events", "Show what happened to jobs."),
        Entry("top", "top:top", "Watch the cluster live."),
        Entry("web", "web:web", "Open the cluster in your browser."),
        Entry("stats", "stats:stats", "Show what a job, a machine or the cluster used over time."),
        Entry("news", "news:news", "News from the admins, for everybody."),
        Entry("notice", "notices:notice", "Be told what happens to jobs: by e-mail, in a chat, or by a webhook."),
        Entry("share", "queue:share", "Show who is entitled to what, and has used how much of it."),
        Entry("report", "queue:report", "Show who used what in a month."),
    ),
    "Change": (
        Entry("cancel", "jobs:cancel", "Stop jobs."),
        Entry("hold", "jobs:hold", "Keep waiting jobs from starting."),
        Entry("release", "jobs:release", "Let held jobs start again."),
        Entry("requeue", "jobs:requeue", "Stop running jobs and queue them again."),
        Entry("exec", "exec:execute", "Run a command inside a running job."),
        Entry("extend", "jobs:extend", "Give a running or waiting session more time."),
        Entry("port", "web:port", "Open a port of a running job in your browser."),
        Entry("ssh", "exec:ssh", "Open a shell inside a running job, or run a command there on a terminal."),
        Entry("report-metric", "sweep:report_metric", "Report a metric of the job it is called from."),
        Entry("checkpointed", "jobs:checkpointed", "Say that a running job has saved its work."),
    ),
    "Machines": (
        Entry("nodes", "nodes:nodes", "List machines, their GPUs and what is free."),
        Entry("node", "nodes:node", "Show, set or drain a machine, or use it again."),
        Entry(
            "reservation", "reservations:reservation", "Nodes set aside for a course, a deadline, or maintenance."
        ),
        Entry("slurm", "slurm:slurm", "Slurm's accounts, kept in step with ours; and a Slurm of your own."),
        Entry("doctor", "doctor:doctor", "Find out what is wrong and what to do about it."),
    ),
    "Plan": (
        Entry(
            "simulate", "simulate:simulate", "Replay past jobs on made-up machines, under one policy or several."
        ),
        Entry("history", "history:history", "Past jobs, to be replayed."),
    ),
    "People": (
        Entry("whoami", "login:whoami", "Show who the server thinks you are."),
        Entry("login", "login:login", "Log in to a server elsewhere."),
        Entry("logout", "login:logout", "Forget the login."),
        Entry("token", "login:token", "Personal tokens for scripts and other machines."),
        Entry("user", "users:user", "Accounts."),
        Entry("project", "projects:project", "Projects, their members, shares and quotas."),
        Entry("department", "projects:department", "Departments and their shares."),
        Entry("audit", "users:audit", "Show who did what."),
    ),
    "Server": (
        Entry("up", "server:up", "Start Heliostat on this machine."),
        Entry("down", "server:down", "Stop Heliostat; running jobs go on."),
        Entry("status", "server:status", "Show whether Heliostat is running."),
        Entry("migrate", "migrate:migrate", "Move from this machine alone to Slurm."),
        Entry("demo", "server:demo", "Try a throw-away cluster of 40 nodes and 100 GPUs."),
    ),
}

COMMANDS = {entry.name: entry for entries in SECTIONS.values() for entry in entries}


def overview() -> str:
    """The text of `helio --help`."""
    lines = ["Usage: helio COMMAND [OPTIONS]", "", "One queue for the GPUs of a lab.", ""]
    for title, entries in SECTIONS.items():
        lines += [f"{title}:", *(f"  {entry.name:<14}{entry.summary}" for entry in entries), ""]
    lines += [
        "helio COMMAND --help says more about one; --json prints what programs can read.",
        "Start here: helio up --background, then helio run --follow -- nvidia-smi",
    ]
    return "\n".join(lines)
