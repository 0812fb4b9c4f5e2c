"""Files of exported policies that somebody has changed."""

from __future__ import annotations

import json
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any


def altered(tmp_path: Path, facts: Any, program: bytes) -> Path:
    """A file whose checksums are good, whatever is in it."""
    if isinstance(facts, dict) and "sha256" in facts:
        facts = {**facts, "sha256": sha256(program).hexdigest()}
    with zipfile.ZipFile(tmp_path / "altered", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy.json", facts if isinstance(facts, str) else json.dumps(facts))
        archive.writestr("policy.bin", program)
    return tmp_path / "altered"
