"""One module per page, each with a `router`; all of them are found and served by `routes.install`."""
