"""The planner: placement, backfill, fair share, preemption, explanations and forecasts. Pure."""
