"""Undoes Content-Encoding, with a bound on what comes out.

Owns the two codings the API takes.

Invariants: no more than the limit (and one step) is ever held, however small the input was, so a
decompression bomb costs its sender a 413 and the broker nothing. Pure.

Threads: any; both libraries release the GIL.
"""

from __future__ import annotations

import zlib

from store_native.errors import InvalidRequest

_STEP = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS
_MAX_WINDOW = 1 << 27
# Each further member copies what is left of the input; a body of a million tiny ones would be a bomb of time.
_MAX_MEMBERS = 64


def expand(data: bytes, coding: str, limit: int) -> bytes:
    """Returns the decoded body.

    Args:
        data: The whole encoded body; several members or frames in a row are allowed.
        coding: ``gzip`` or ``zstd``.
        limit: Bytes that may come out.

    Raises:
        InvalidRequest: REQUEST_TOO_LARGE beyond the limit, MALFORMED_BODY for a broken or cut stream.
    """
    return _gzip(data, limit) if coding == "gzip" else _zstd(data, limit)


def _gzip(data: bytes, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    members = 0
    try:
        while data:
            members = _next_member("gzip", members)
            member = zlib.decompressobj(_GZIP)
            rest = data
            while not member.eof:
                piece = member.decompress(rest, _STEP)
                rest = member.unconsumed_tail
                if not piece and not rest and not member.eof:
                    raise _broken("gzip", "it ends too early")
                size = _within("gzip", size + len(piece), limit)
                pieces.append(piece)
            data = member.unused_data
    except zlib.error as error:
        raise _broken("gzip", str(error)) from error
    return b"".join(pieces)


def _zstd(data: bytes, limit: int) -> bytes:
    # Imported here: only who sends zstd pays for loading it.
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    try:
        # Twice: the reader is bounded but does not tell a cut stream from a whole one; the object
        # tells, but gives everything at once, which is safe only when the size is known.
        size = 0
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            buffer = bytearray(_STEP)
            while read := reader.readinto(buffer):
                size = _within("zstd", size + read, limit)
        pieces: list[bytes] = []
        frames = 0
        while data:
            frames = _next_member("zstd", frames)
            frame = decompressor.decompressobj()
            pieces.append(frame.decompress(data))
            if not frame.eof:
                raise _broken("zstd", "it ends too early")
            data = frame.unused_data
    except zstandard.ZstdError as error:
        raise _broken("zstd", str(error)) from error
    return b"".join(pieces)


def _within(coding: str, size: int, limit: int) -> int:
    if size > limit:
        raise InvalidRequest(
            "REQUEST_TOO_LARGE", f"the {coding} body expands to more than {limit} bytes", limit=limit
        )
    return size


def _next_member(coding: str, members: int) -> int:
    if members == _MAX_MEMBERS:
        raise _broken(coding, f"it has more than {_MAX_MEMBERS} members")
    return members + 1


def _broken(coding: str, reason: str) -> InvalidRequest:
    return InvalidRequest("MALFORMED_BODY", f"the {coding} body is broken: {reason}")
