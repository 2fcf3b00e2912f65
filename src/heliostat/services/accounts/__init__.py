"""People, projects, tokens, quotas and shares."""
