"""The report that a run leaves for people: a page with a timeline, the document beside it, and the way to run it again."""
