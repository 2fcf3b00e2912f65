"""Benchmarks: Heliostat next to other queues, measured in the same run on the same machine (`make bench`)."""
