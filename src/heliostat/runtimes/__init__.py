"""How a task is isolated on a node: pure builders of command lines, and the rules of what may be asked for."""
