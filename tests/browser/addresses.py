"""Every page, for the tests that open all of them."""

PAGES = (
    "/",
    "/jobs",
    "/jobs?state=unfinished&sort=-gpus",
    "/cluster",
    "/cluster?state=busy&span=month",
    "/cluster/a100-01",
    "/nothing-here",
)
