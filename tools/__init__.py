"""The gates of `make check` and the story of `make story`. Development only: no package of the product imports this."""
