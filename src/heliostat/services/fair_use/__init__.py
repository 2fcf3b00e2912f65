"""Fair use of GPUs: the idle ladder, answers to it, and the waste report."""
