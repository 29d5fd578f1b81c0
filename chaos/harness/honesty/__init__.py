"""The judgement of the words of the sites: each is compared with the facts that a run has at its end."""
