"""Database access (SQLite): tables, queries, transactions, migrations; uploaded files and usage samples."""
