"""No isolation: the command as it is, a plain process of its user."""

from heliostat.runtimes.contract import CannotContain, Command, Container


class Process:
    name = "process"
    takes_images = False
    program = ""

    def command(self, asked: Container) -> Command:
        if asked.task.image is not None or asked.mounts:
            raise CannotContain("a plain process has neither image nor mounts")
        return Command(asked.task.argv, asked.environment.common, asked.environment.of_task)
