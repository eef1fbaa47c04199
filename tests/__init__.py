"""The tests of torch_pjrt. This is imported before anything of them."""

import os

# Programs from earlier runs of the tests would be loaded where a test counts compiles.
# tests/disk/test_disk_cache.py turns the disk cache on, in processes and folders of its own. Read when the
# package is imported.
os.environ["TORCH_PJRT_CACHE"] = "0"
