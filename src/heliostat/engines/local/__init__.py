"""Runs jobs on this machine: one wrapper process and one cgroup per attempt, GPUs, containers."""
