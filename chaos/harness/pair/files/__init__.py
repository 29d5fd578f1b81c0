"""The files of both sites: read at the end, copied and put back, watched for damage, and counted."""
