"""Jobs: from the request to what is left of them."""
