"""What a site tells Prometheus: the list of its metrics, how they are written out, and figures of process and lag."""
