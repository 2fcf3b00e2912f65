"""Why a notice did not arrive."""


class Undelivered(Exception):
    """It did not arrive, in words that may be shown to whoever wants to be told."""

    def __init__(self, problem: str, *, is_final: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_final = is_final  # no further try will do better
