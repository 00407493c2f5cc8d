"""Decodes pictures from outside in a child process, scales them down and encodes them again, or refuses them.

The original file is not sent to the model: the model gets a PNG or JPEG that this module encodes from the pixels,
without metadata.  Image decoders are large and have a history of exploits, so the child has limits of memory and time
and an environment without secrets, and the process with the secrets decodes no picture.  PNG, JPEG, WebP and GIF (first
frame) are accepted.

The token count is an estimate: pixels / 750 (docs.anthropic.com, Vision) + 85. For pictures near PIXELS, the tiles of
OpenAI cost less than the estimate; for small pictures they can cost more.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import agent
from agent import proc
from agent.errors import PictureRefused

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
LARGEST = 10_000_000
"""Maximum number of bytes of a picture file, as on GitHub (10 MB); a larger picture is refused."""
MOST_PIXELS = 50_000_000
"""A picture with more pixels than MOST_PIXELS is refused before it is decoded."""
EDGE = 1568
PIXELS = 1_150_000
"""EDGE is the longest edge in pixels, PIXELS the largest number of pixels, of a picture that is sent; Anthropic scales
larger pictures down itself."""
LEAST_EDGE = 64
"""A picture is refused, since it would be unreadable, if scaling it down leaves an edge of fewer pixels than this, or
shortens an edge that has fewer pixels already."""
PER_PICTURE = 85
PIXELS_PER_TOKEN = 750
MEMORY = 1 << 30
SECONDS = 20.0
_CHILD = "import sys; sys.path[:] = sys.argv[2:]; from agent.security.pictures import main; main()"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in the form in which it is sent: `data` is a complete PNG or JPEG file, `tokens` an estimate of its
    cost."""

    data: bytes
    media_type: str
    width: int
    height: int

    @property
    def tokens(self) -> int:
        """The estimated number of tokens that the picture costs."""
        return tokens_of(self.width, self.height)


def tokens_of(width: int, height: int) -> int:
    """The estimated number of tokens that a picture of `width` × `height` pixels costs."""
    return PER_PICTURE + math.ceil(width * height / PIXELS_PER_TOKEN)


def size_within(width: int, height: int, tokens: int) -> tuple[int, int]:
    """The size (width, height) at which a picture is sent, with the same proportions: no edge is longer than EDGE, it
    has at most PIXELS pixels, and its estimated cost is at most `tokens`; (1, 1) if nothing larger costs so little."""
    pixels = min(PIXELS, max(1, (tokens - PER_PICTURE) * PIXELS_PER_TOKEN))
    scale = min(1.0, EDGE / max(width, height), math.sqrt(pixels / (width * height)))
    return max(1, int(width * scale)), max(1, int(height * scale))


def prepare(data: bytes, *, tokens: int) -> Picture:
    """The picture file `data`, decoded and encoded again, and scaled down if it would cost more than `tokens` by the
    estimate or is too large (EDGE, PIXELS).

    Raises PictureRefused with the reason if the picture is refused.
    """
    if not data:
        raise PictureRefused("the file is empty")
    if len(data) > LARGEST:
        raise PictureRefused(f"it has {len(data):,} bytes; at most {LARGEST:,} are taken")
    home = str(Path(agent.__file__).parent.parent)
    folders = [home, *(folder for folder in sys.path if folder not in ("", home))]
    done = proc.run(
        [sys.executable, "-I", "-c", _CHILD, str(tokens), *folders],
        env={"LANG": "C.UTF-8"},
        timeout=SECONDS,
        stdin=data,
        cap=32 << 20,
        merge=False,
    )
    head, _, body = done.output.partition(b"\n")
    try:
        said = json.loads(head)
    except ValueError:
        how = "took too long" if done.timed_out else "failed"
        raise PictureRefused(f"decoding it {how}: it is damaged, or made to do harm") from None
    if "error" in said:
        raise PictureRefused(said["error"])
    return Picture(body, said["media_type"], said["width"], said["height"])


def main() -> None:
    """Runs in the child process: reads a picture file from stdin, and writes one line of JSON (media type and size, or
    `error`) and the new file to stdout."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        said, body = _made(sys.stdin.buffer.read(), int(sys.argv[1]))
    except MemoryError:
        said, body = {"error": "it needs too much memory to be decoded"}, b""
    out = os.fdopen(1, "wb")
    out.write(json.dumps(said).encode() + b"\n" + body)
    out.flush()


def _made(data: bytes, tokens: int) -> tuple[dict[str, object], bytes]:
    import warnings
    from io import BytesIO

    from PIL import Image, ImageOps, UnidentifiedImageError

    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit is off, since the comparison with MOST_PIXELS replaces it
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as opened:
            width, height = opened.size
            if width * height > MOST_PIXELS:
                return {"error": f"it has {width:,} × {height:,} pixels; at most {MOST_PIXELS:,} are taken"}, b""
            size = size_within(width, height, tokens)
            if min(size) < min(LEAST_EDGE, width, height):
                return {"error": f"{width} × {height} pixels do not fit into the window so that anything is seen"}, b""
            opened.draft("RGB", size)  # Pillow decodes a large JPEG at a lower resolution, which saves memory
            image = ImageOps.exif_transpose(opened)
            plain = image.convert("RGBA" if image.has_transparency_data else "RGB")
    except UnidentifiedImageError:
        return {"error": f"it is none of {', '.join(FORMATS)}"}, b""
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError) as error:
        return {"error": f"it is damaged ({type(error).__name__})"}, b""
    size = size_within(*plain.size, tokens)
    if plain.mode == "RGBA":  # transparent pixels of the picture become white, as on a white page
        white = Image.new("RGBA", plain.size, "white")
        plain = Image.alpha_composite(white, plain).convert("RGB")
    if size != plain.size:
        plain = plain.resize(size, Image.Resampling.LANCZOS)
    plain.info.clear()  # Pillow would write the comment and the colour profile of the original file into the new file
    png, jpeg = BytesIO(), BytesIO()
    plain.save(png, "PNG", optimize=True)
    plain.save(jpeg, "JPEG", quality=88, optimize=True)
    # PNG loses nothing and is small for screenshots. JPEG is chosen if the PNG has at least 200,000 bytes and more than
    # twice the bytes of the JPEG, as for photographs.
    kind, made = ("png", png) if png.tell() <= 2 * jpeg.tell() or png.tell() < 200_000 else ("jpeg", jpeg)
    return {"media_type": f"image/{kind}", "width": plain.width, "height": plain.height}, made.getvalue()
