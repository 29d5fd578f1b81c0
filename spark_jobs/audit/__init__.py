"""One audit: from its settings and barrier over a Spark session to its folder, once or on a schedule."""
