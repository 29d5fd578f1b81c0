"""Power loss of real processes: what they wrote and did not sync is taken back from their files."""
