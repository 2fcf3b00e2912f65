"""Batch notebooks: put into the queue, and what runs them inside their jobs."""
