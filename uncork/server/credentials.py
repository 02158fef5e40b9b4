"""Keys, certificates and tokens of a server, in files that it can read again while it runs."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uncork.config.errors import WrongUsage
from uncork_gateway.auth import ApiKeys, read_keys
from uncork_workers.wire.certificates import load_authorities, load_certificate
from uncork_workers.wire.handshake import read_token

OF_CLIENTS = ("api_key_file", "tls_cert", "tls_key", "tls_client_ca")
OF_WORKERS = ("worker_token_file", "worker_tls_cert", "worker_tls_key", "worker_tls_client_ca")
OF_SERVERS = ("server_ca",)
FILES = (*OF_CLIENTS, *OF_WORKERS, *OF_SERVERS)
"""The options that name the files; the last is the proxy's."""
_IMPORTED = ("inference_service", "model_settings")


def files_of(options: Any) -> list[str]:
    """Return the files that the settings of a server come from."""
    files = (options.config, *(getattr(options, name, None) for name in (*FILES, *_IMPORTED)))
    return [str(file) for file in files if file is not None]


def check_watched(options: Any) -> None:
    """Raise WrongUsage if ``--watch-config`` is set and the settings come from no file."""
    if options.watch_config and not files_of(options):
        raise WrongUsage(
            "--watch-config requires --config, or a file of keys, certificates, a token or imported settings"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The content of the credential files for the clients of a server, or for the workers of a service.

    Attributes:
        keys: the accepted API keys; None if clients need none.
        token: what workers must know; None without a file.
        tls, grpc_tls: for HTTP or workers, and for gRPC; None for plain TCP.
        contents: a digest of each file, by option.
    """

    keys: ApiKeys | None = None
    token: bytes | None = None
    tls: ssl.SSLContext | None = None
    grpc_tls: ssl.SSLContext | None = None
    contents: Mapping[str, bytes] = field(default_factory=dict)


def read_credentials(options: Any) -> Credentials:
    """Read the files of clients.

    Raises:
        WrongUsage: if one cannot be used.
    """
    files = options.tls_cert, options.tls_key, options.tls_client_ca
    # First: a file that changes meanwhile is read once more, not never.
    contents = _contents_of(options, (*OF_CLIENTS, *OF_SERVERS))
    return Credentials(
        keys=_keys_in(options.api_key_file),
        tls=server_tls(*files, prefix="--tls"),
        grpc_tls=server_tls(*files, prefix="--tls", protocols=("h2",)),
        contents=contents,
    )


def read_worker_credentials(options: Any, *, on_ray: bool) -> Credentials:
    """Read the files for workers. Those on Ray get what they need when Ray starts them: nothing is renewed.

    Raises:
        WrongUsage: if one cannot be used.
    """
    file = options.worker_token_file
    contents = {} if on_ray else _contents_of(options, OF_WORKERS)
    return Credentials(
        token=None if file is None else token_in(file, option="--worker-token-file"),
        tls=server_tls(
            options.worker_tls_cert,
            options.worker_tls_key,
            options.worker_tls_client_ca,
            prefix="--worker-tls",
        ),
        contents=contents,
    )


def renewed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """Return the options whose files have other contents."""
    return [name for name in after if name in before and before[name] != after[name]]


def _contents_of(options: Any, names: Sequence[str]) -> dict[str, bytes]:
    """Return a digest of each file that these options name."""
    found = {}
    for name in names:
        file: Path | None = getattr(options, name, None)
        if file is not None:
            try:
                found[name] = hashlib.sha256(file.read_bytes()).digest()
            except OSError as error:
                raise WrongUsage(f"--{name.replace('_', '-')}: {file}: {error.strerror}") from None
    return found


def server_tls(
    cert: Path | None,
    key: Path | None,
    client_ca: Path | None,
    *,
    prefix: str,
    protocols: Sequence[str] = (),
) -> ssl.SSLContext | None:
    """Return the server's side of TLS; None without a certificate. The options begin with ``prefix``.

    With ``protocols``, clients must accept one of these for ALPN.

    Raises:
        WrongUsage: if a file cannot be used.
    """
    if cert is None:
        if key or client_ca:
            raise WrongUsage(f"{prefix}-key and {prefix}-client-ca require {prefix}-cert")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if protocols:
        context.set_alpn_protocols(protocols)
    try:
        load_certificate(context, cert, key, prefix=prefix)
        if client_ca is not None:
            load_authorities(context, client_ca, option=f"{prefix}-client-ca")
            context.verify_mode = ssl.CERT_REQUIRED
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    return context


def token_in(file: Path, *, option: str) -> bytes:
    """Return the token in a file.

    Raises:
        WrongUsage: if it cannot be read, or is too short.
    """
    try:
        return read_token(file.read_text())
    except OSError as error:
        raise WrongUsage(f"{option}: {file}: {error.strerror}") from None
    except ValueError as error:
        raise WrongUsage(f"{option}: {file}: {error}") from None


def _keys_in(file: Path | None) -> ApiKeys | None:
    if file is None:
        return None
    try:
        return read_keys(file)
    except OSError as error:
        raise WrongUsage(f"--api-key-file: {file}: {error.strerror}") from None
    except ValueError as error:
        raise WrongUsage(f"--api-key-file: {error}") from None
