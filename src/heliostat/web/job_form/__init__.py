"""One job in all its forms: fields of a page, body of the API, YAML, JSON, a `helio run` line. All of it pure.

`bodies` (a request or a job as a body) stands in the middle: `texts` (form), `files` (YAML, JSON) and
`command_line` each lead to a body or from one. What is right is said by whoever reads bodies: the API.
`page` is what people see of it.
"""
