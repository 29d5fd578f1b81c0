"""Activation: the one way by which a site becomes the writer."""
