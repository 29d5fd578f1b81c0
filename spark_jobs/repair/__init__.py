"""The job `repair`: rows that differ are written again through the active."""
