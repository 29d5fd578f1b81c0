"""The storage of one site: keys, schemas, records, frames, segments, the local WAL, and the engines that hold the rows.

The lowest layer: it imports no other package of the project. Its pure modules (codecs, chain) perform no I/O, so that
Spark jobs and the simulator read the same bytes by the same code.
"""
