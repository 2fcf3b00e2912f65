"""Simulated nodes on which jobs take virtual time, for tests, demos and simulation."""
