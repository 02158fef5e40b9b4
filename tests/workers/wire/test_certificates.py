"""What is wrong with the files of a certificate."""

from __future__ import annotations

import re
import ssl
from functools import partial
from pathlib import Path

import pytest
import trustme

from uncork_workers.wire.certificates import load_authorities, load_certificate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    one, other = (authority.issue_cert("127.0.0.1") for _ in range(2))
    key, chain = one.private_key_pem.bytes(), one.cert_chain_pems[0].bytes()
    damaged = b"-----BEGIN %b-----\nAAAA\n-----END %b-----\n"
    files = {
        "both.pem": key + chain,
        "cert.pem": chain,
        "key.pem": key,
        "other.pem": other.private_key_pem.bytes(),
        "locked.pem": damaged % (b"ENCRYPTED PRIVATE KEY", b"ENCRYPTED PRIVATE KEY"),
        "old-locked.pem": key.replace(b"\n", b"\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1),
        "junk.pem": b"junk",
        "bad-key.pem": damaged % (b"PRIVATE KEY", b"PRIVATE KEY"),
        "bad.pem": damaged % (b"CERTIFICATE", b"CERTIFICATE"),
        "ca.pem": authority.cert_pem.bytes(),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("cert", "key"), [("both.pem", None), ("cert.pem", "key.pem"), ("both.pem", "both.pem")]
)
def test_good_files_are_loaded(folder: Path, cert: str, key: str | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, folder / cert, None if key is None else folder / key, prefix="--tls")
    load_authorities(context, folder / "ca.pem", option="--tls-client-ca")
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("cert", "key", "complaint"),
    [
        ("none.pem", None, "--tls-cert: none.pem: No such file or directory"),
        (".", None, "--tls-cert: .: Is a directory"),
        ("junk.pem", "key.pem", "--tls-cert: junk.pem has no certificate in PEM format"),
        ("key.pem", "cert.pem", "--tls-cert: key.pem has no certificate in PEM format"),
        ("cert.pem", None, "--tls-cert: cert.pem has no private key; name "),
        ("cert.pem", "none.pem", "--tls-key: none.pem: No such file or directory"),
        ("cert.pem", "junk.pem", "--tls-key: junk.pem has no private key in PEM format"),
        ("cert.pem", "other.pem", "--tls-key: other.pem is not the key of the certificate in cert.pem"),
        ("cert.pem", "locked.pem", "--tls-key: the private key in locked.pem is encrypted; decrypt it"),
        ("cert.pem", "old-locked.pem", "--tls-key: the private key in old-locked.pem is encrypted; "),
        ("cert.pem", "bad-key.pem", "--tls-cert: cert.pem or bad-key.pem is damaged; expected PEM files"),
        ("bad.pem", "key.pem", "--tls-cert: bad.pem or key.pem is damaged; expected PEM files"),
        ("ca", "none.pem", "--ca: none.pem: No such file or directory"),
        ("ca", "key.pem", "--ca: key.pem has no certificate in PEM format"),
        ("ca", "bad.pem", "--ca: a certificate in bad.pem is damaged"),
    ],
)
def test_a_bad_file_is_named(
    folder: Path, cert: str, key: str | None, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a certificate and its key, or of authorities."""
    monkeypatch.chdir(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file = None if key is None else Path(key)
    load = partial(load_certificate, context, Path(cert), file, prefix="--tls")
    if cert == "ca" and file is not None:
        load = partial(load_authorities, context, file, option="--ca")
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        load()
