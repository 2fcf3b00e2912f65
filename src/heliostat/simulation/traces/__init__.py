"""Traces: recorded or synthetic jobs with their requests, submission times and run times."""
