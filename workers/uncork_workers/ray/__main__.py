"""``python -m uncork_workers.ray``: the helper process of a gateway, see :mod:`.messages`."""

import sys

from uncork_workers.ray.driver import main

if __name__ == "__main__":
    sys.exit(main())
