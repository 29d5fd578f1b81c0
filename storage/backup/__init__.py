"""The messages, parts and manifests of a backup, and what a site keeps of its log for one."""
