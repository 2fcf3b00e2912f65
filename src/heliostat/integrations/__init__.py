"""Integrations with other programs: Dask and JupyterHub. Each module needs that program's package."""
