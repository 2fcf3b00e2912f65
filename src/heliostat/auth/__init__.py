"""Authentication: users from Unix sockets, tokens, passwords and browser logins."""
