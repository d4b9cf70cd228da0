"""Configuration of the documentation site: ``make docs`` builds it, offline, with warnings as errors."""

import html
import os
import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

DOCS_DIR = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS_DIR))

import generate  # noqa: E402

generate.write_all()
generate.write_leaderboards()

project = "searchlab"
author = "the searchlab authors"
copyright = "the searchlab authors, Apache-2.0"
version = release = version_of("searchlab")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_design",
]
exclude_patterns = ["_build", "generated"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # an included file begins below the level of its page

nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_ipywidgets_js = {}  # they would come from a CDN

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "pydata_sphinx_theme"
html_title = "searchlab"
html_static_path = ["_static"]
html_extra_path = ["generated/extra"]  # the leaderboards
html_css_files = ["searchlab.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}


def rewrite_relative_links(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """Make the links of an included file, which are relative to that file, relative to the page that includes it."""
    source_dir = (DOCS_DIR / path).resolve().parent
    if source_dir.name == "generated":
        return
    page_dir = (DOCS_DIR / app.env.docname).parent

    def rewrite_link(link: re.Match[str]) -> str:
        image, text, link_target, anchor = link.groups("")
        if image or not link_target or "://" in link_target:
            return link[0]
        target_path = (source_dir / link_target).resolve()
        if target_path.is_dir():  # the site has no page for it
            return text
        relative_target = os.path.relpath(target_path, page_dir)
        if target_path.suffix == ".md" and not target_path.is_relative_to(DOCS_DIR):
            return f"{{download}}`{text} <{relative_target}>`"
        return f"[{text}]({relative_target}{anchor})"

    content[0] = re.sub(r"(!?)\[([^\[\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", rewrite_link, content[0])


def inline_diagrams(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the diagrams into the page itself, so that their colours follow its theme, light or dark."""
    for image in list(doctree.findall(nodes.image)):
        image_path = DOCS_DIR / image["uri"]
        if image_path.suffix == ".svg" and 'class="diagram"' in (svg := image_path.read_text("utf-8")):
            label = f'role="img" aria-label="{html.escape(image["alt"])}"'
            image.replace_self(nodes.raw("", svg.replace('class="diagram"', f'class="diagram" {label}'), format="html"))


def omit_ranges(app: Sphinx, *arguments: Any) -> tuple[str | None, str | None]:
    """Shorten types such as ``Annotated[int, Meta(ge=1)]`` in signatures to ``int``."""
    *_, signature, return_annotation = arguments
    return signature and re.sub(r"Annotated\[(\w+), msgspec\.Meta\([^)]*\)\]", r"\1", signature), return_annotation


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", omit_ranges)
    app.connect("include-read", rewrite_relative_links)
    app.connect("doctree-resolved", inline_diagrams)
