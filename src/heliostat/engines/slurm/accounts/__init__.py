"""Synchronization of Slurm's accounting with Heliostat's departments, projects and users."""
