"""A comparison as one HTML page that needs nothing else."""
