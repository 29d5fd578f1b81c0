"""The operator's page: how long its views take on a pair that has much, and what open pages cost the gateway."""
