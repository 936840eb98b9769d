"""Lets ``python -m lakemq.cli`` be the ``lakemq`` command."""

import sys

from lakemq.cli.app import main

sys.exit(main())
