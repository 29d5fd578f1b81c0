"""The metrics of a site: the list of all of them, with their texts, and the figures of its process."""
