"""The second checker of rows: a program in Go that asks Porcupine, and its ways in from here."""
