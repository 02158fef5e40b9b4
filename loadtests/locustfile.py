"""Uncork's locust users, ready to run: locust -f loadtests/locustfile.py --help"""

from uncork_loadtests.locust.users import ClosedLoopUser, OpenLoopUser

__all__ = ["ClosedLoopUser", "OpenLoopUser"]
