"""Why a pending job waits, in words: quotas, dependencies, reservations, priority, or which resources are missing."""
