"""A Slurm of one's own, set up on this machine."""
