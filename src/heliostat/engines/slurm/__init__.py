"""Runs jobs on a Slurm cluster, which queues and places them itself."""
