"""For all tests."""

import os

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code. The suite tries the same examples
# each time, so that a change is blamed for its own faults only; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
