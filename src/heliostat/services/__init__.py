"""Services: the operations that users can perform, with permission checks and one transaction each."""
