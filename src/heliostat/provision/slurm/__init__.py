"""A Slurm that Heliostat sets up: from a description of machines to the files Slurm reads."""
