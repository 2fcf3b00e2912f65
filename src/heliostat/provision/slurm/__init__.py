"""Setup of a Slurm cluster (`helio slurm setup`): from nodes.toml to Slurm's configuration and daemons."""
