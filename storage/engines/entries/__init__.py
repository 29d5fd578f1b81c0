"""What a write is, whatever the engine: the changes that frames make, and the base data that moves between sites."""
