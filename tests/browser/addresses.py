"""Every page, for the tests that open all of them."""

PAGES = ("/", "/jobs", "/jobs?state=unfinished&sort=-gpus", "/jobs/new", "/nothing-here")
