"""View models of the job page."""
