"""The cluster: nodes, reservations, what is used."""
