"""The routes below `/ui`: one file for each view, and what all of them share."""
