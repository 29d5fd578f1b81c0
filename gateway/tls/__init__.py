"""TLS on the listeners of a site: certificates and keys, the handshake, and who the other end is."""
