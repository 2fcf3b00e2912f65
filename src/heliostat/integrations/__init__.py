"""Heliostat inside programs of others. Each module needs a package of theirs, and the client of ours."""
