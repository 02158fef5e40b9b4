"""``python -m tests.e2e.ray_cluster``: a Ray cluster of a head and two nodes on this machine.

Prints the address of its head and that of its Ray Client server, and runs until its input ends.
"""

import socket
import sys

from ray.cluster_utils import Cluster

CPUS = 4
_STORE_BYTES = 100_000_000


def main() -> None:
    """Run the cluster."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client_port = listener.getsockname()[1]
    arguments = {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "ray_client_server_port": client_port, **arguments},
    )
    for _ in range(2):
        cluster.add_node(num_cpus=CPUS, **arguments)
    print(cluster.address, f"ray://127.0.0.1:{client_port}", flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
