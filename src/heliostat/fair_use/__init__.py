"""Rules of fair use: what happens to GPUs that are held and not used. Pure."""
