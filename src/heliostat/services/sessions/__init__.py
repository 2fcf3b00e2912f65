"""Sessions: interactive jobs with a web server, such as JupyterLab."""
