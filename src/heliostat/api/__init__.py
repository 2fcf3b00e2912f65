"""HTTP API: request schemas, routes, serialization, event streams and the Chronos API."""
