"""Our users for locust, to be used as they are: locust -f loadtests/locustfile.py --help"""

from uncork_loadtests.locust.users import JsonUser, NdArrayUser, OpenLoopUser

__all__ = ["JsonUser", "NdArrayUser", "OpenLoopUser"]
