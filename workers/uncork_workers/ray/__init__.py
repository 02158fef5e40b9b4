"""Workers on the nodes of a Ray cluster, which only a helper process of the gateway talks to."""
