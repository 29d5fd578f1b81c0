"""The RocksDB engine, the embedded default."""
