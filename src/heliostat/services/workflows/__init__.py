"""Workflows and sweeps."""
