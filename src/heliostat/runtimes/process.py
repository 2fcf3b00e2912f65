"""Process runtime: no isolation, a plain process of the user."""

from heliostat.runtimes.contract import ContainerSpec, RuntimeCommand, UnsupportedByRuntime


class PlainProcess:
    name = "process"
    needs_image = False
    program = ""

    def make_command(self, spec: ContainerSpec) -> RuntimeCommand:
        if spec.task.image is not None or spec.mounts:
            raise UnsupportedByRuntime("a plain process has neither image nor mounts")
        return RuntimeCommand(spec.task.argv, spec.variables.common, spec.variables.per_task)
