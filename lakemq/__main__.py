"""Lets ``python -m lakemq`` be the ``lakemq`` command.

Owns nothing else.
"""

import sys

from lakemq.cli.start import main

sys.exit(main())
