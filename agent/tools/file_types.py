"""Determines the kind of a binary file by its first bytes; the tools for files show the model only its kind and
size."""

from __future__ import annotations

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "PNG image"),
    (0, b"\xff\xd8\xff", "JPEG image"),
    (0, b"GIF8", "GIF image"),
    (8, b"WEBP", "WebP image"),
    (8, b"WAVE", "WAV sound"),
    (8, b"AVI ", "AVI video"),
    (0, b"\0\0\1\0", "icon"),
    (0, b"%PDF-", "PDF document"),
    (0, b"PK\3\4", "ZIP archive (also docx, xlsx, jar, whl)"),
    (0, b"PK\5\6", "empty ZIP archive"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (0, b"Rar!\x1a\7", "RAR archive"),
    (257, b"ustar", "tar archive"),
    (0, b"\x7fELF", "ELF program or library"),
    (0, b"MZ", "Windows program or library"),
    (0, b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (0, b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (0, b"\0asm", "WebAssembly module"),
    (0, b"SQLite format 3\0", "SQLite database"),
    (4, b"ftyp", "MP4 or HEIF media"),
    (0, b"OggS", "Ogg media"),
    (0, b"fLaC", "FLAC sound"),
    (0, b"ID3", "MP3 sound"),
    (0, b"wOFF", "web font"),
    (0, b"wOF2", "web font"),
    (0, b"\0\1\0\0\0", "TrueType font"),
    (0, b"OTTO", "OpenType font"),
    (0, b"!<arch>\n", "static library"),
    (0, b"PACK", "git pack"),
)
# Signatures that may also be the beginning of a text: they count only if the sample contains a NUL.
_WEAK = {b"MZ", b"BZh", b"ID3", b"PACK", b"GIF8", b"OTTO", b"wOFF", b"wOF2", b"OggS", b"fLaC", b"Rar!\x1a\7"}


# The first bytes of the other signatures, and the R of RIFF, with which WebP, WAV and AVI files begin.
_FIRST = frozenset(sign[:1] for offset, sign, _ in _MAGIC if offset == 0 and sign not in _WEAK) | {b"R"}


def binary_kind(sample: bytes) -> str | None:
    """The kind of a binary file, by the beginning of the file (512 bytes or more); None when it looks like text.

    Data with a NUL counts as binary unless it begins with a UTF-16 or UTF-32 mark.
    """
    marked = sample.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))
    has_nul = b"\0" in sample and not marked
    if not has_nul and sample[:1] not in _FIRST:
        return None  # to save time: nearly every text has neither a NUL nor the first byte of a signature
    for offset, sign, name in _MAGIC:
        if sample[offset : offset + len(sign)] == sign and (has_nul or sign not in _WEAK):
            return name
    return "data" if has_nul else None


def size_text(size: int) -> str:
    """A size for people: `1,234 bytes`, `1.2 MB`."""
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**4, "kB")):
        if size >= limit:
            return f"{size / (10**9 if unit == 'GB' else 10**6 if unit == 'MB' else 10**3):,.1f} {unit}"
    return f"{size:,} byte{'' if size == 1 else 's'}"
