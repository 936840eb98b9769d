"""How a client's requests are compressed on their way.

Owns the codings that a sender may choose, and from which size on a body is compressed.

Invariants: a body becomes the same bytes each time, so that a repeat is the request that it repeats; what
does not become smaller is sent as it is. What is stored is never compressed by it: the broker undoes it, and
its limits count the bytes on both sides. Pure.

Threads: any; both libraries release the GIL.
"""

from __future__ import annotations

import zlib
from typing import Final

from store_native.errors import InvalidRequest

COMPRESSIONS: Final = ("none", "gzip", "zstd")
"""None is ``none``; the others are the Content-Encodings that a broker takes."""
COMPRESS_ABOVE_BYTES: Final = 4096
"""A body of so many bytes, or fewer, is sent as it is."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_GZIP_LEVEL: Final = 5
_ZSTD_LEVEL: Final = 3


def check_compression(value: str) -> str:
    """Returns the name of a coding.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, there is none of that name.
    """
    if value not in COMPRESSIONS:
        detail = f"compression: is {value!r}, it is one of {', '.join(COMPRESSIONS)}"
        raise InvalidRequest("ARGUMENT_ILLEGAL", detail)
    return value


def compressed(body: bytes, compression: str) -> tuple[bytes, dict[str, str]]:
    """Compresses a request's body where that makes it smaller.

    Args:
        body: As the broker is to see it.
        compression: One of COMPRESSIONS.

    Returns:
        What to send, and the headers that say so.
    """
    if compression == "none" or len(body) <= COMPRESS_ABOVE_BYTES:
        return body, {}
    packed = _gzip(body) if compression == "gzip" else _zstd(body)
    return (packed, {"Content-Encoding": compression}) if len(packed) < len(body) else (body, {})


def _gzip(body: bytes) -> bytes:
    packing = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP)  # its header has no time
    return packing.compress(body) + packing.flush()


def _zstd(body: bytes) -> bytes:
    # Imported here: only who sends zstd pays for loading it.
    import zstandard

    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(body)
