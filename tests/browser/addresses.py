"""Every page, for the tests that open all of them."""

ADMIN = (
    *("users", "new-user", "users/root", "projects", "new-project", "projects/default", "new-department"),
    *("departments/default", "quotas", "reservations", "new-reservation", "nodes", "nodes/a100-01", "news"),
    *("audit", "settings", "doctor"),
)
PAGES = (
    "/",
    "/jobs",
    "/jobs?state=unfinished&sort=-gpus",
    "/jobs/new",
    "/jobs/new?gpus=2&time_limit=4h",
    "/sessions",
    "/sessions/new",
    "/schedules",
    "/schedules/new",
    "/cluster",
    "/cluster?state=busy&span=month",
    "/cluster/a100-01",
    "/compare",
    "/compare?a=1&b=2",
    "/environments",
    "/environments?everybodys=true",
    "/images",
    "/images?everybodys=true",
    "/notices",
    "/notices?everybodys=true",
    "/share?people=true",
    "/reports?by=user",
    "/admin",
    *("/admin/" + name for name in ADMIN),
    "/nothing-here",
)
