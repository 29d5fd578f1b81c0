"""What a backup of a pair is made of: messages, parts and manifests."""
