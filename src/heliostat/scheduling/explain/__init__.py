"""Why a pending job waits, in words: quota, dependency, reservation, priority or missing resources."""
