"""Lists of past jobs: what they asked for, when, and how long they ran."""
