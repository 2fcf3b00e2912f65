"""The Slurm engine: submits jobs to a Slurm cluster, which queues and places them, and reports their states."""
