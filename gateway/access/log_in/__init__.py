"""The log-in at the page by an OIDC issuer: the authorization code flow with PKCE."""
