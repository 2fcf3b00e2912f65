"""Replay of past or made-up jobs through the live planner, far faster than real time."""
