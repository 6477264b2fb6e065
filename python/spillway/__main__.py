# SPDX-License-Identifier: Apache-2.0
import sys

from spillway.cli import main

sys.exit(main())
