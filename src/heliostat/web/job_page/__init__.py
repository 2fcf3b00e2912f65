"""What the page of one job is made of."""
