"""Writing the remote log: the pipelined writer, its segments, and the trimmer that deletes what is no longer needed."""
