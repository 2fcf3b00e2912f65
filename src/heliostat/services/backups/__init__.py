"""Backups of an installation: create, verify and restore. They work on files, with or without a server."""
