"""The product's own engines, RocksDB and SQLite, as the storage of a simulated site: in real folders, on virtual time."""
