"""Services that stay up: wished for, kept, reached."""
