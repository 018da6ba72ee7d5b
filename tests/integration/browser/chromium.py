"""A browser that reaches nothing but this machine."""

import shutil

# Debian's name first, then that of Google's package.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
# Every other host's name cannot be resolved.
NO_OTHER_HOST = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
