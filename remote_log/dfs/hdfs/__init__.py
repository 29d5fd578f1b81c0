"""HDFS behind the DFS port: Hadoop's own client in this process."""
