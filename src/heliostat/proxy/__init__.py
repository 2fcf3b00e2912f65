"""The way to the servers inside jobs: an origin of its own, which only forwards."""
