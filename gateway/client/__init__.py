"""The clients of the API, for apps and for operators, over a flow that performs no I/O."""
