"""Who asks, and what they may: identities, roles and grants, and the limits of each identity."""
