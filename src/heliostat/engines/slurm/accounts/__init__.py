"""Slurm's accounts follow our departments, projects and people."""
