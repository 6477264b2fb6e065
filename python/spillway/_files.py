# SPDX-License-Identifier: Apache-2.0
"""Reads files of untrusted origin, and writes files into folders that other users may write to."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "DOCUMENT",
    "can_be_written",
    "check_regular",
    "is_stream",
    "read_bytes",
    "read_start",
    "read_text",
    "read_toml",
    "reason_of",
    "replace",
]

#: Maximum bytes of a document: a plan, a profile, an answer of a dry run.
DOCUMENT = 64 << 20

_CHUNK = 16 << 20


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a regular file of at most `most` bytes.

    Never blocks. Raises OSError with a reason in `strerror`, also for a FIFO, a device, a socket, a folder, a
    larger file, and an invalid path."""
    with _opened(path, most) as handle:
        content = _read(handle, most + 1)
    if len(content) > most:  # it has grown, or is one of /proc
        raise _too_large(most)
    return content


def check_regular(path: str | os.PathLike[str], most: int) -> None:
    """For a reader that opens `path` itself. Raises OSError as `read_bytes` does."""
    with _opened(path, most):
        pass


def read_start(path: str | os.PathLike[str], count: int) -> bytes:
    """The first `count` bytes of a regular file of any size. Raises OSError as `read_bytes` does."""
    with _opened(path) as handle:
        return _read(handle, count)


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str], most: int | None = None) -> Iterator[int]:
    try:
        # O_NONBLOCK: a FIFO without a writer would block the open itself.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:  # a NUL byte, or a character that the file system's encoding does not have
        raise OSError(errno.EINVAL, f"Not a valid path: {error}") from None
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        if most is not None and found.st_size > most:
            raise _too_large(most)
        yield handle
    finally:
        os.close(handle)


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"Larger than {most >> 20} MiB")


def _read(handle: int, most: int) -> bytes:
    content = bytearray()
    while len(content) < most and (chunk := os.read(handle, min(_CHUNK, most - len(content)))):
        content += chunk
    return bytes(content)


def read_text(path: str | os.PathLike[str], most: int = DOCUMENT) -> str:
    """The content as text. Raises OSError as `read_bytes` does, and UnicodeDecodeError, a ValueError, for a
    file that is not UTF-8."""
    return read_bytes(path, most).decode("utf-8")


def read_toml(path: str | os.PathLike[str], most: int) -> dict[str, Any]:
    """The document of a TOML file. Raises OSError as `read_bytes` does; ValueError if it is not TOML, or not
    text; RecursionError if its values nest too deeply."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(read_text(path, most))


def reason_of(error: OSError) -> str:
    """The reason in lower case, for use within a message: "no such file or directory"."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def can_be_written(path: Path) -> bool:
    """Whether `path` is a writable file, or can be created in a writable folder. Never raises."""
    try:
        there = path.stat()
    except FileNotFoundError:
        folder = os.path.dirname(os.path.abspath(path))
        return not path.is_symlink() and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    except (OSError, ValueError):  # as a name that is too long, or in a folder that may not be entered
        return False
    return not stat.S_ISDIR(there.st_mode) and os.access(path, os.W_OK)


def is_stream(path: Path) -> bool:
    """Whether writing to `path` must not replace it: a device, a FIFO, or an open file as /dev/stdout.

    Elsewhere than in /dev, only a link to an open file of this process is followed: another one could lead to
    any device.
    """
    target = os.path.join(path.parent, os.readlink(path)) if path.is_symlink() else str(path)
    if os.path.realpath(os.path.dirname(target)) == f"/proc/{os.getpid()}/fd":
        return True
    if path.is_symlink() and path.absolute().parts[:2] != ("/", "dev"):
        return False
    return path.exists() and not path.is_file()


def replace(texts: Mapping[Path, str], mode: int = 0o600) -> None:
    """Writes files: all texts to drafts beside them, then each draft in place of its file. A link is
    replaced, and not followed. A stream (see `is_stream`) is written to. New files have `mode`, less the
    process's umask.

    Raises OSError; a file whose draft is not in its place has its former content then."""
    drafts: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            if is_stream(path):
                _write(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC), text)
                continue
            # A name that cannot be predicted; a short one, because that of `path` may be the longest allowed.
            draft = path.parent / f".spillway-{secrets.token_hex(8)}"
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
            drafts[path] = draft
            _write(handle, text)
        for path in list(drafts):
            os.replace(drafts[path], path)
            del drafts[path]
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                os.unlink(draft)


def _write(handle: int, text: str) -> None:
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
