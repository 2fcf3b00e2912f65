"""User accounts, projects, tokens, quotas and fair shares."""
