"""Simulation of scheduling policies: replay of recorded or synthetic jobs through the live planner."""
