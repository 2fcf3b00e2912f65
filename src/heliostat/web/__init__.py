"""Web interface: server-rendered pages with live updates."""
