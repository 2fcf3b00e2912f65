"""Workflows as they are written: parameters, matrices, conditions; pure. Jobs are made of them elsewhere."""
