"""The whole gateway in virtual time: one seed determines clients, workers, network and faults.

All code of the gateway and the supervisor is real; sockets, processes and the clock are not.
"""
