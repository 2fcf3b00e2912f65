"""The web: server-rendered pages, live through small modules of our own."""
