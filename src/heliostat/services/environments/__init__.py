"""Environments and images: validation, builds, requests of jobs, removal."""
