"""`python -m jaxattn.verify module:function`, also where the folder stands alone."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
