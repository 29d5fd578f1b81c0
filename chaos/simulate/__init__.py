"""The whole pair in one process on virtual time: the product's own code on simulated ports, one seed, one trace."""
