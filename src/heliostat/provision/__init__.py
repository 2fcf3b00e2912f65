"""Sets servers up, beside everything else: needs no running server."""
