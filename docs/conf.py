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

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

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


def relative_links(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """Make the links of an included file, which are relative to that file, relative to the page that includes it."""
    folder = (DOCS / path).resolve().parent
    if folder.name == "generated":
        return
    page = (DOCS / app.env.docname).parent

    def rewritten(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups("")
        if image or not target or "://" in target:
            return link[0]
        file = (folder / target).resolve()
        if file.is_dir():  # the site has no page for it
            return text
        there = os.path.relpath(file, page)
        if file.suffix == ".md" and not file.is_relative_to(DOCS):
            return f"{{download}}`{text} <{there}>`"
        return f"[{text}]({there}{anchor})"

    content[0] = re.sub(r"(!?)\[([^\[\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", rewritten, content[0])


def inline_diagrams(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the diagrams into the page itself, so that their colours follow its theme, light or dark."""
    for image in list(doctree.findall(nodes.image)):
        file = DOCS / image["uri"]
        if file.suffix == ".svg" and 'class="diagram"' in (svg := file.read_text("utf-8")):
            label = f'role="img" aria-label="{html.escape(image["alt"])}"'
            image.replace_self(nodes.raw("", svg.replace('class="diagram"', f'class="diagram" {label}'), format="html"))


def omit_ranges(app: Sphinx, *documented: Any) -> tuple[str | None, str | None]:
    """Shorten types such as ``Annotated[int, Meta(ge=1)]`` in signatures to ``int``."""
    *_, signature, returned = documented
    return signature and re.sub(r"Annotated\[(\w+), msgspec\.Meta\([^)]*\)\]", r"\1", signature), returned


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", omit_ranges)
    app.connect("include-read", relative_links)
    app.connect("doctree-resolved", inline_diagrams)
