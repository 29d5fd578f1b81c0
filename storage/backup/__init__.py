"""The messages, parts and manifests of a backup."""
