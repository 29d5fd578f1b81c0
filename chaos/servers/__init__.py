"""Real servers for tests and tools: HDFS, PostgreSQL, Spark, Kerberos."""
