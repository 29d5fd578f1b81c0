"""The writes of an engine, whatever its database: the effects of frames, base data between sites, and the cut of a rejoin."""
