"""The public package: what apps import. It needs nothing of the server.

    from twinlog import Client, errors

    with Client("twinlog://pair?a=http://127.0.0.1:8401&b=http://127.0.0.1:8402") as pair:
        pair.put("planes", "N14228", {"seats": 149})

What always holds: this package imports nothing of gateway, storage and the other rooms of the server, which import its errors.
"""
