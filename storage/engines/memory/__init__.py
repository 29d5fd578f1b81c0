"""The memory engine: the plain twin that every other engine is compared with."""
