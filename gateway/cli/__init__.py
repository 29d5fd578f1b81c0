"""The command line: verbs for data, for logs, for audits and for operators."""
