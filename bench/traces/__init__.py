"""What traces cost: CPU of a write without them and with them."""
