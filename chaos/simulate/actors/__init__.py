"""Those who act in a simulation: clients, the operator, the monitor, and the nemesis with its disasters."""
