"""The operator's page: the pair as one site sees it, and what an operator may do about it, at `/ui`."""
