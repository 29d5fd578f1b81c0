"""The log of one site: records, frames, segments, the chain that links them, the WAL and the cursors of its readers."""
