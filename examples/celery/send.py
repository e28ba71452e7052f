"""Send a task for each title: python send.py sales stock"""

import sys

from reports import make

for title in sys.argv[1:]:
    print("sent", make.delay(title).id)
