"""The copy of the WAL on the other site's DFS, and everything that moves between the sites.

Claims and fencing, the pipelined remote writer, the trimmer, and the asynchronous replicator with its receiving end.
It stands on storage and knows nothing of roles or HTTP routes.
"""
