"""Jobs: submission, control, dependencies, explanation, history, files and reruns."""
