"""What people can do, one transaction each, with its rights and rules."""
