"""Test clients for services. Everything between client and handler is real, but runs in this process.

::

    from uncork.testing import client

    def test_digits():
        with client(Digits) as c:
            reply = c.post("/predict", json=[0.0] * 64)
            assert reply.status_code == 200
            replies = c.post_all("/predict", json=[[0.0] * 64] * 5)     # five requests at once
            assert replies[0].headers["x-batch-size"] == "5"            # are one batch

The service runs in its own thread and ``setup`` is called once. Requests are batched, and errors answered, as
under ``uncork serve``; but no port is opened, no process is started, and there is no warm-up. An exception of
a handler is raised by the request that failed, so a test shows where it came from.
"""

from uncork.testing.clients import AsyncClient, Client, Overrides, async_client, client

__all__ = ["AsyncClient", "Client", "Overrides", "async_client", "client"]
