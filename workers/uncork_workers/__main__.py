"""``python -m uncork_workers``: one worker process, started by the supervisor."""

import sys

from uncork_workers.process.worker import main

sys.exit(main())
