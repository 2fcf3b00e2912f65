"""One module per page, each with a `router`; `routes.page_routers` discovers them."""
