"""Images that people build."""
