"""The storage engines behind the one contract of `storage.engine`: RocksDB (embedded default) and SQL databases."""
