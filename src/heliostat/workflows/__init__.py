"""Workflow and sweep files: parsing, parameters, matrices, conditions and expansion into jobs. Pure."""
