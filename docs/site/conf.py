"""The documentation site; ``./dev docs`` builds it.

The source folder is the root of the repository: a link between two documents means the same there and on the site.
Nothing here starts a device. ``torch.pjrt``'s names are documented where they are defined.
"""

from __future__ import annotations

import torch_pjrt

project = "torch-pjrt"
author = "the torch-pjrt maintainers"
version = release = torch_pjrt.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/site/index"
include_patterns = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md"]
# Not even looked into.
exclude_patterns = [".*", "bench", "build", "dist", "examples", "models", "python", "src", "tests", "zoo"]

html_theme = "furo"
html_title = f"torch-pjrt {version}"
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}
html_copy_source = False
html_extra_path = ["index.html"]  # leads from the top to the first page
pygments_style = "friendly"

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
