"""Lets ``python -m lakemq`` be the ``lakemq`` command."""

import sys

from lakemq.cli.start import main

sys.exit(main())
