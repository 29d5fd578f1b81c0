"""Replication: the messages between sites, the shipper, the sink, base data, and where two logs part."""
