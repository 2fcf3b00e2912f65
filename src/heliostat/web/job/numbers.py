"""Numbers of jobs in addresses."""

from starlette.convertors import Convertor, register_url_convertor


class JobNumber(Convertor[int]):
    """Digits that the database can hold. What is longer is no address of ours, and neither is `/jobs/new`."""

    regex = "[0-9]{1,16}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("job", JobNumber())
JOB = "{job_id:job}"
ARRAY = "{array_id:job}"
"""Parts of addresses."""
