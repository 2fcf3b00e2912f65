"""No isolation: the command as it is, a plain process of its user."""

from heliostat.runtimes.contract import ContainerSpec, RuntimeCommand, UnsupportedByRuntime


class PlainProcess:
    name = "process"
    needs_image = False
    program = ""

    def make_command(self, asked: ContainerSpec) -> RuntimeCommand:
        if asked.task.image is not None or asked.mounts:
            raise UnsupportedByRuntime("a plain process has neither image nor mounts")
        return RuntimeCommand(asked.task.argv, asked.variables.common, asked.variables.per_task)
