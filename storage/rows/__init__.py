"""Rows and their bytes: column types, the key codec, schemas, the row codec, its fast lanes, predicates. All pure."""
