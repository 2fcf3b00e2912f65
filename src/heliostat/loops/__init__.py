"""Work that is done again and again, each in a thread of its own, by calling services."""
