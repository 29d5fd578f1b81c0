"""The availability monitor: views of the pair, findings, the judgement, and the watcher that acts on it."""
