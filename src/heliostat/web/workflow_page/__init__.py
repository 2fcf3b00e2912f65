"""Charts of the workflow page."""
