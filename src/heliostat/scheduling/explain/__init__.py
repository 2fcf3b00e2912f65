"""Explanations of why a pending job waits: quota, dependency, reservation, priority or missing resources."""
