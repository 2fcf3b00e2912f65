"""Job form: conversion between form fields, API body, YAML, JSON and a `helio run` command. Pure functions.

`request_to_body` (a request or job as API body) is the common format: `text_conversion` (form), `job_file` (YAML,
JSON) and `command_line` convert to or from it. The API validates bodies.
`form_view` is the view model of the page.
"""
