"""The servers below the sites, PostgreSQL and HDFS: started, broken, lost and read past the links."""
