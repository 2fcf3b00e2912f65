"""How many examples a property test tries."""

import os


def example_count(count: int) -> int:
    """All of them where new ones are searched for (`HYPOTHESIS_PROFILE=search`), and a third in the suite, whose
    examples are the same each time: what they did not find yesterday they find only after a change."""
    return count if os.environ.get("HYPOTHESIS_PROFILE") == "search" else max(10, count // 3)
