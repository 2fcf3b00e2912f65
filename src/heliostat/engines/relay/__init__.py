"""Relays: connections to ports of jobs on other nodes, through a program that runs inside the job."""
