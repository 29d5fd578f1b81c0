"""The SQL engine: PostgreSQL and SQLite, each table a table of the database."""
