"""What the pages of workflows are made of."""
