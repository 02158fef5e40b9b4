"""Uncork's locust users, ready to run: locust -f loadtests/locustfile.py --help"""

from uncork_loadtests.locust.users import JsonUser, NdArrayUser, OpenLoopUser

__all__ = ["JsonUser", "NdArrayUser", "OpenLoopUser"]
