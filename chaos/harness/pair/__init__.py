"""The pair as processes, files and links, from outside: how it is started, broken, looked at, commanded and read."""
