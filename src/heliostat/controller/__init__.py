"""One thread moves the cluster towards what the database says; what it knows, records and foresees."""
