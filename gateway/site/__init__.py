"""A site as a whole: its role, its operations, its facts, and its door for the other site."""
