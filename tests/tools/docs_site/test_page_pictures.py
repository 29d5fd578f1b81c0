"""The pictures of the documents: as large as what was taken, in fewer colours."""

from __future__ import annotations

from io import BytesIO

from PIL import Image

from tools.docs_site.page_pictures import COLOURS, small


def test_a_picture_keeps_its_size_and_has_few_colours() -> None:
    shown = Image.new("RGB", (80, 40))
    shown.putdata([(x * 3, y * 6, (x * y) % 256) for y in range(40) for x in range(80)])
    png = BytesIO()
    shown.save(png, "PNG")
    with Image.open(BytesIO(small(png.getvalue()))) as kept:
        assert (kept.size, kept.mode) == (shown.size, "P")
        assert len(kept.getcolors() or ()) <= COLOURS
