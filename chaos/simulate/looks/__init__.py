"""Looks at the sites of a run: what is held there, who has which log open, and what a site says of itself beside what is so."""
