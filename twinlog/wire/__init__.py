"""HTTP with one site: what is asked, how it is sent, and what comes back."""
