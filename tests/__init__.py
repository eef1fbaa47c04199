"""The tests of torch_pjrt. This file is imported before them."""

import os

# Programs from earlier runs of the tests would be loaded where a test counts compiles. The package reads this variable
# when it is imported. tests/disk/test_disk_cache.py enables the disk cache in processes and folders of its own.
os.environ["TORCH_PJRT_CACHE"] = "0"
