"""The job `replay`: a log becomes a new storage, in parallel."""
