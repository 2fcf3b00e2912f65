"""Container runtimes: command lines that isolate a task on a node, and the policy of what jobs may request."""
