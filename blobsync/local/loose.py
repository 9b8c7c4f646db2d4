"""What releases lack here whose files lie in the bucket as plain objects. Thread-safe.

What was fetched of them lies in packs, as all small files do; but which packs those are differs from host to
host, so it is found out here: by the tables of the packs of this store, whoever brought them.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from blobsync.errors import InvalidPackError
from blobsync.local.disk import FileIdentity, opened
from blobsync.local.lacking import Lacking
from blobsync.local.objects import ObjectFiles
from blobsync.local.verification import read_table
from blobsync.names import is_digest
from blobsync.release.artifacts import contents
from blobsync.release.blob import PACKED_BYTES
from blobsync.release.layout import MAX_PACKS, Layout, Pack
from blobsync.release.loose import Bundle, LooseFile, LooseFiles, bundles_of, loose_blobs
from blobsync.release.manifest import Manifest

_STATES = 16
_MOST_OLD_PACKS = MAX_PACKS // 2
"""If the small files of a release lie in more packs than that, the rest is fetched anew, in few."""


@dataclass(slots=True)
class _State:
    """What is known of one release."""

    missing: set[bytes]
    """Small files that no pack has, as far as was looked; as of `blobsync.release.artifacts.contents`."""
    bundles: tuple[Bundle, ...] = ()
    packs: dict[Pack, FileIdentity] = field(default_factory=dict)
    """Those that have something of it."""
    seen: set[str] = field(default_factory=set)
    """Names of packs whose tables were read."""


class LooseQuestions:
    """Answers what is lacking, and which packs have the rest.

    Args:
        objects: The packs and blobs.
    """

    def __init__(self, objects: ObjectFiles) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._states: OrderedDict[str, _State] = OrderedDict()

    def lacks(self, manifest: Manifest, layout: Layout) -> Lacking:
        """See `blobsync.LocalStore.lacks`. OSError passes through."""
        assert layout.loose is not None  # noqa: S101 - else it is no question for us
        with self._lock:
            state = self._state(manifest, layout)
            missing = set(state.missing)
            bundles = [
                bundle.only(bundle.files.within(missing))
                for bundle in state.bundles
                if bundle.prefix == layout.loose and isinstance(bundle.files, LooseFiles)
            ]
        blobs = [blob for blob in loose_blobs(manifest, layout.loose) if not self._objects.sound(blob)]
        missing.update(_content(blob.sha256, blob.size_bytes) for blob in blobs)
        if not missing:
            return Lacking()
        files = manifest.files
        lost = array("I", [index for index, content in enumerate(files.contents()) if content in missing])
        return Lacking(
            (*(bundle for bundle in bundles if bundle.files), *blobs),
            files.only(lost),
        )

    def placed(self, manifest: Manifest, layout: Layout) -> Layout:
        """The layout, with the packs of this store that have the small files of a release."""
        with self._lock:
            return replace(layout, packs=tuple(self._state(manifest, layout).packs))

    def missing_of(self, bundle: Bundle) -> tuple[LooseFile, ...]:
        """What of a bundle is in no pack of this store now; another process may have brought some of it."""
        with self._lock:
            state = self._states.get(bundle.release)
            if state is None:
                state = _State({_content(file.sha256, file.size_bytes) for file in bundle.files})
            self._look(state)
            return tuple(
                file for file in bundle.files if _content(file.sha256, file.size_bytes) in state.missing
            )

    def _state(self, manifest: Manifest, layout: Layout) -> _State:
        state = self._states.get(manifest.digest)
        if state is None or any(self._objects.look(pack) != found for pack, found in state.packs.items()):
            small = zip(manifest.files.contents(), manifest.files.sizes, strict=True)
            state = _State({content for content, size in small if size <= PACKED_BYTES})
            self._take(state, layout.packs, most=MAX_PACKS)
            self._look(state, most=_MOST_OLD_PACKS)
        else:
            self._look(state)
        if not state.missing:
            state.bundles, state.seen = (), set()
        elif all(bundle.prefix != layout.loose for bundle in state.bundles):
            state.bundles = bundles_of(manifest, layout.loose or "")
        self._states[manifest.digest] = state
        self._states.move_to_end(manifest.digest)
        while len(self._states) > _STATES:
            self._states.popitem(last=False)
        return state

    def _look(self, state: _State, most: int = MAX_PACKS) -> None:
        if state.missing:
            self._take(state, self._packs_here(state.seen), most)

    def _take(self, state: _State, packs: Iterable[Pack], most: int) -> None:
        """Find out what these packs have of it."""
        for pack in packs:
            if not state.missing:
                return
            found = self._objects.look(pack)
            if found is None or not self._objects.has(pack):
                continue
            state.seen.add(pack.name)
            own = state.missing.intersection(self._members(pack))
            if own and len(state.packs) < most:
                state.packs[pack] = found
                state.missing -= own

    def _members(self, pack: Pack) -> Iterable[bytes]:
        try:
            with opened(self._objects.path(pack)) as fd:
                table = read_table(fd, pack.size_bytes)
        except (FileNotFoundError, InvalidPackError):  # it went, or changed, just now
            return ()
        return contents(table.sha256s.raw, table.sizes)

    def _packs_here(self, seen: set[str]) -> Iterable[Pack]:
        """All packs of this store, but those. The largest first, so that few are enough."""
        found = [pack for pack in self._listed() if pack.name not in seen]
        return sorted(found, key=lambda pack: (-pack.size_bytes, pack.name))

    def _listed(self) -> Iterator[Pack]:
        with os.scandir(self._objects.base.root / "packs") as folders:
            for folder in folders:
                if not folder.is_dir(follow_symlinks=False):
                    continue
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if is_digest(entry.name) and entry.is_file(follow_symlinks=False):
                            yield Pack(entry.name, entry.stat(follow_symlinks=False).st_size)


def _content(sha256: str, size_bytes: int) -> bytes:
    """As of `contents`."""
    return next(contents(bytes.fromhex(sha256), [size_bytes]))
