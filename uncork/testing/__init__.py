"""Clients for the tests of a service: everything between client and handler is real, but in this process.

::

    from uncork.testing import client

    def test_digits():
        with client(Digits) as c:
            reply = c.post("/predict", json=[0.0] * 64)
            assert reply.status_code == 200
            replies = c.post_all("/predict", json=[[0.0] * 64] * 5)     # five requests at once
            assert replies[0].headers["x-batch-size"] == "5"            # are one batch

The service runs in a thread of its own, ``setup`` is called once, requests are batched and errors become
answers as under ``uncork serve``; but nothing listens on a port, no process is started, and nothing is warmed
up. What a handler raises is raised by the request that it failed, so that a test shows where.
"""

from uncork.testing.clients import AsyncClient, Client, Overrides, async_client, client

__all__ = ["AsyncClient", "Client", "Overrides", "async_client", "client"]
