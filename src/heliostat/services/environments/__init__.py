"""Environments: what may be in them, who builds them, who has them."""
