"""The one way to open files that come from outside, and the one way to write files.

Whatever is read is a regular file of bounded size, so that neither a pipe nor a device can hang this process or exhaust
its memory. Whatever is written first gets a different, unique name and is then renamed, so that a process that is
killed leaves the previous file as it was, and never blocks the next process. If a directory is passed as ``under``,
files are read and written only within it, even if links in it lead elsewhere, because directories may come from
strangers. The directory itself may be a link, since the user chose it.
"""

from __future__ import annotations

import csv
import errno
import gzip
import hashlib
import io
import os
import re
import stat
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, TypeVar

from .errors import SearchlabError, warn

T = TypeVar("T")

MAX_FILE_BYTES = 256 << 20
"""The default maximum size of a file, in bytes. No file but logs and tables ever comes near it."""

UNPACK_VARIABLE = "SEARCHLAB_UNPACK_MB"
"""The environment variable that limits the size of unpacked files, in MB."""

MAX_NAME_BYTES = 100
"""The maximum length of a name made by :func:`file_name`, in bytes. File systems allow 255, including endings."""

FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The characters with which a formula in a spreadsheet may begin, including their full-width variants."""

RESERVED_NAME = "report"

RESERVED_ENDINGS = (".json", ".jsonl", ".toml", ".npz", ".gz", ".parquet", ".log")
"""Names, and endings of names, that :func:`file_name` avoids, because searchlab's own files are found by them."""

MAX_SHOWN_FILES = 5
"""The maximum number of files that are named in warnings."""

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class FileMissing(SearchlabError):
    """Raised if there is no file, nor a link, with the given name."""


def open_file(path: str | Path, *, under: Path | None = None, kind: str = "") -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: The file to open.
        under: The directory outside which nothing may be read, or None if the user chose the file.
        kind: The kind of file to name in error messages, such as ``"the log"``.

    Raises:
        FileMissing: If there is no such file.
        SearchlabError: If the file cannot be opened, is not a regular file, or is outside ``under``.
    """
    description = f"{kind} {path}".lstrip()
    try:
        resolved_path = Path(path) if under is None else resolve_inside(path, under)
        check_regular(os.stat(resolved_path), f"read {description}")  # opening a device may have effects
        no_follow = 0 if under is None else os.O_NOFOLLOW
        file = os.fdopen(os.open(resolved_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | no_follow), "rb")
        check_regular(os.fstat(file.fileno()), f"read {description}")
        return file
    except (OSError, ValueError) as error:  # a ValueError is raised for a name with a null byte
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError) and not os.path.islink(path):
            raise FileMissing(f"cannot read {description}: {reason}") from None
        if isinstance(error, FileNotFoundError):
            reason = f"it is a link to {os.readlink(path)}, which does not exist"
        raise SearchlabError(f"cannot read {description}: {reason}") from None


def read_bytes(path: str | Path, *, under: Path | None = None, kind: str = "", limit: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes; see :func:`open_file`."""
    with open_file(path, under=under, kind=kind) as file:
        byte_count = os.fstat(file.fileno()).st_size
        description = f"{kind} {path}".lstrip()
        if byte_count > limit:
            raise SearchlabError(
                f"cannot read {description}: its size is {byte_count >> 20:,} MB, and at most {limit >> 20:,} MB are "
                f"read"
            )
        try:
            return file.read(byte_count or 1 << 20)  # the files of /proc have a size of 0
        except OSError as error:
            raise SearchlabError(f"cannot read {description}: {error.strerror}") from None
        except MemoryError:
            megabytes = byte_count >> 20
            raise SearchlabError(f"cannot read {description}: its {megabytes:,} MB do not fit into memory") from None


def read_text(path: str | Path, *, under: Path | None = None, kind: str = "") -> str:
    """Return the content of a text file in UTF-8, without a byte order mark and with ``\\n`` as line ending.

    Raises the errors of :func:`read_bytes`, and SearchlabError if the file is not text in UTF-8.
    """
    text_bytes = read_bytes(path, under=under, kind=kind)
    try:
        return text_bytes.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise SearchlabError(
            f"cannot read {f'{kind} {path}'.lstrip()}: it is not text in UTF-8 ({error.reason} at byte {error.start:,})"
        ) from None


def unpack_limit() -> int:
    """Return the maximum size of an unpacked file, in bytes. Raises SearchlabError if the user's setting is invalid."""
    megabytes_text = os.environ.get(UNPACK_VARIABLE, "")
    if megabytes_text and not megabytes_text.isdecimal():
        raise SearchlabError(f"{UNPACK_VARIABLE} must be a number of megabytes, not {megabytes_text!r}")
    return int(megabytes_text or 1024) << 20


def check_unpacked(path: str | Path, file_bytes: int, unpacked_bytes: int, line_bytes: int = 0) -> None:
    """Raise SearchlabError if a file is larger than :func:`unpack_limit`, or one line than a sixteenth of it.

    Args:
        path: The path of the file, for the message.
        file_bytes: The size of the file, in bytes.
        unpacked_bytes: Its unpacked size, or that of the part that has been unpacked, in bytes.
        line_bytes: The size of its longest line, in bytes.
    """
    limit = unpack_limit()
    if unpacked_bytes > limit or line_bytes > limit // 16:
        excess = f"to more than {limit >> 20} MB" if unpacked_bytes > limit else f"to a line of {line_bytes >> 20} MB"
        raise SearchlabError(
            f"{path} is {file_bytes >> 10} kB in size and unpacks {excess}, more than any searchlab file should; if "
            f"you trust the file, set the environment variable {UNPACK_VARIABLE} to a larger number of megabytes"
        )


def resolve_inside(path: str | Path, under: Path) -> Path:
    """Return ``path`` with all links resolved. Raises SearchlabError if it is outside the directory ``under``."""
    target_path = real_path(path)
    if not target_path.is_relative_to(real_path(under)):
        raise SearchlabError(
            f"{path} leads to {target_path}, outside {under}, so it is neither read nor written; if you trust it, "
            f"replace the link with the file itself"
        )
    return target_path


def real_path(path: str | Path) -> Path:
    """Return ``path`` with all links resolved. Unlike ``Path.resolve``, it accepts links that lead to themselves."""
    return Path(os.path.realpath(path))


def check_regular(status: os.stat_result, purpose: str) -> None:
    """Raise SearchlabError unless ``status`` is that of a regular file. ``purpose`` is such as "read the log x"."""
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "device")
        raise SearchlabError(f"cannot {purpose}: it is a {kind}; pass a regular file")


def find_files(directory: Path, endings: tuple[str, ...]) -> list[Path]:
    """Return all files in ``directory`` and its subdirectories whose names end in one of ``endings``, sorted.

    Links that lead out of the directory, to directories or nowhere, pipes and devices are left out with a
    SearchlabWarning.
    """
    files: list[Path] = []
    problem_by_path: dict[Path, str] = {}
    for current_folder, folder_names, file_names in os.walk(directory):
        for path in [Path(current_folder, name) for name in (*file_names, *folder_names) if name.endswith(endings)]:
            try:
                status = os.lstat(path)
                if stat.S_ISDIR(status.st_mode):
                    continue
                if stat.S_ISLNK(status.st_mode):
                    status = os.stat(resolve_inside(path, directory))
                check_regular(status, f"read {path}")
                files.append(path)
            except OSError as error:
                problem_by_path[path] = f"cannot read {path}: {error.strerror}"
            except SearchlabError as error:
                problem_by_path[path] = str(error)
    _warn_skipped([problem_by_path[path] for path in sorted(problem_by_path)])
    return sorted(files)


def read_each(paths: Iterable[Path], read: Callable[[Path], T], required: Collection[Path] = ()) -> list[T]:
    """Return ``read(path)`` for each of ``paths``, without those that cannot be read.

    They are left out with a SearchlabWarning each, since one damaged file must not take the others with it.

    Args:
        paths: The files to read, some of which may be damaged.
        read: The function that reads a file.
        required: The files that the user named and that therefore must be readable.

    Raises:
        SearchlabError: If one of the ``required`` files cannot be read, or none of the files can be read.
    """
    results: list[T] = []
    problems: list[SearchlabError] = []
    for path in paths:
        try:
            results.append(read(path))
        except SearchlabError as error:
            if path in required:
                raise
            problems.append(error)
    if problems and not results:
        raise problems[0]
    _warn_skipped([str(error) for error in problems])
    return results


def _warn_skipped(problems: list[str]) -> None:
    for problem in problems[:MAX_SHOWN_FILES]:
        warn(f"skipped: {problem}")
    if len(problems) > MAX_SHOWN_FILES:
        unshown_count = len(problems) - MAX_SHOWN_FILES
        warn(f"skipped: {unshown_count:,} more files that cannot be read")


@contextmanager
def replace_file(path: str | Path, *, under: Path | None = None, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` when the context ends without an error, and is removed otherwise.

    The new file has a unique name in the same directory until then. If ``path`` is a link, the link is replaced, not
    the file that it leads to. Missing directories are created.

    Args:
        path: The file to write.
        under: The directory outside which nothing may be written, or None if the user chose the file.
        durable: Whether to force the file to disk before it is renamed.

    Raises:
        SearchlabError: If the file cannot be written, for example because the disk is full.
    """
    path = Path(path)
    temporary_path = path.with_name(f".{uuid.uuid4().hex}.part")  # hidden from listings and searches
    try:
        if under is not None:
            resolve_inside(path.parent, under)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            check_regular(os.stat(path), f"write {path}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary_path, flags, 0o666), "wb") as file:
            try:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                os.replace(temporary_path, path)
            except BaseException:
                temporary_path.unlink(missing_ok=True)
                raise
        if durable:
            sync_directory(path.parent)
    except (OSError, ValueError) as error:
        raise make_write_error(path, error) from None


def make_write_error(path: str | Path, error: OSError | ValueError) -> SearchlabError:
    """Return the error to raise if ``path`` could not be written because of ``error``."""
    is_disk_error = getattr(error, "errno", None) in _DISK_ERRORS
    remedy = "; free some space or check the disk, then run the command again" if is_disk_error else ""
    return SearchlabError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}{remedy}")


def write_file(path: str | Path, data: bytes | str, *, under: Path | None = None, durable: bool = False) -> None:
    """Write ``data``, text in UTF-8, to the file ``path``; see :func:`replace_file`."""
    with replace_file(path, under=under, durable=durable) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def copy_file(source: Path, path: Path, *, under: Path) -> None:
    """Copy the regular file ``source``, which must be within ``under``, to ``path``."""
    with open_file(source, under=under) as source_file, replace_file(path) as new_file:
        while chunk := source_file.read(1 << 20):
            new_file.write(chunk)


def write_csv(
    path: str | Path, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, under: Path | None = None
) -> None:
    """Write a table to a CSV file, with empty fields for None; see :func:`replace_file`.

    The file is compressed if its name ends in ``.gz``.
    Text that a spreadsheet would execute as a formula gets a ``'`` in front, as OWASP recommends ("CSV Injection").
    """
    with replace_file(path, under=under) as file, ExitStack() as stack:
        binary_file: Any = file
        if str(path).endswith(".gz"):  # without a name and a time, so that equal tables are equal files
            binary_file = stack.enter_context(gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0))
        text_file = io.TextIOWrapper(binary_file, encoding="utf-8", newline="", write_through=True)
        # The writer quotes text that contains \r only if its own lines end with \r.
        writer = csv.writer(_LineFeedFile(text_file))
        for row in chain([columns], rows):
            writer.writerow([_escape_formula(value) for value in row])
        text_file.detach()


def _escape_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_PREFIXES) else value


class _LineFeedFile(NamedTuple):
    """A file for :mod:`csv` whose lines end with \\n instead of \\r\\n."""

    file: IO[str]

    def write(self, line: str) -> None:
        self.file.write(line[:-2] + "\n")


def sync_directory(directory: Path) -> None:
    """Force the names in ``directory`` to disk, so that a new file's name survives a crash of the system."""
    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory_fd)
    finally:
        os.close(directory_fd)


def file_name(text: str) -> str:
    """Return a name for a file or directory: ``text`` with ``_`` for what may not be portable, cut if it is long.

    Names in which searchlab looks for files of its own, such as ``plan.json`` and ``report``, get a ``_`` at the end.
    """
    name = re.sub(r"[^\w.+-]+", "_", text) or "_"
    if len(encoded_name := name.encode()) > MAX_NAME_BYTES:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        name = f"{encoded_name[: MAX_NAME_BYTES - 13].decode('utf-8', 'ignore')}-{digest}"
    if name.startswith("."):
        name = f"_{name.lstrip('.')}"  # neither hidden nor ".."
    return f"{name}_" if name == RESERVED_NAME or name.endswith(RESERVED_ENDINGS) else name
