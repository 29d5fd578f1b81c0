"""The door of one site: HTTP API, admission, the commit driver that feeds both logs, the Python client and the CLI.

It is the composition root too: ports meet their real implementations here and nowhere below. It may import every other
layer (switchover, remote_log, storage); nothing may import it but the tests and the chaos program.
"""
