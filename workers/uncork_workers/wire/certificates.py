"""Certificates: load them, with errors that say which file is wrong, and renew those of a listener."""

from __future__ import annotations

import ssl
from pathlib import Path

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"
# "BEGIN ENCRYPTED PRIVATE KEY" (PKCS #8) or "Proc-Type: 4,ENCRYPTED" (the older form).
_ENCRYPTED = b"ENCRYPTED"


class ServerTls:
    """The TLS of a listener, whose certificates can be renewed.

    Attributes:
        context: what each connection begins with, before it takes the latest certificates.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = self._latest = context
        if context.verify_mode != ssl.CERT_NONE:
            # A client that resumed an earlier session would not be verified again.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        # OpenSSL calls this at the beginning of every connection, whether or not the client names a server.
        context.sni_callback = self._renew_connection

    def renew(self, context: ssl.SSLContext) -> None:
        """Use these certificates for the connections that begin from now on."""
        self._latest = context

    def _renew_connection(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, first: ssl.SSLContext
    ) -> None:
        connection.context = self._latest


def load_certificate(context: ssl.SSLContext, cert: Path, key: Path | None, *, prefix: str) -> None:
    """Load a certificate chain and its key; without ``key``, the key is in the file of the certificate.

    Raises:
        ValueError: if one of them cannot be used; the message names the option, which begins with ``prefix``.
    """
    chain, secret = f"{prefix}-cert", f"{prefix}-key"
    if _CERTIFICATE not in _read(cert, chain):
        raise ValueError(f"{chain}: {cert} has no certificate in PEM format")
    own = _read(key or cert, secret if key else chain)
    if _KEY not in own:
        if key is None:
            raise ValueError(f"{chain}: {cert} has no private key; name the file of the key with {secret}")
        raise ValueError(f"{secret}: {key} has no private key in PEM format")
    if _ENCRYPTED in own:
        raise ValueError(
            f"{secret if key else chain}: the private key in {key or cert} is encrypted; decrypt it, as in "
            f"openssl pkey -in {key or cert} -out NEW_FILE"
        )
    try:
        # Without a password here, OpenSSL would ask for that of an encrypted key at the terminal.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{secret}: {key or cert} is not the key of the certificate in {cert}") from None
        damaged = f"{cert} or {key}" if key else str(cert)
        raise ValueError(f"{chain}: {damaged} is damaged; expected PEM files") from None


def load_authorities(context: ssl.SSLContext, file: Path, *, option: str) -> None:
    """Trust the certificates in a file.

    Raises:
        ValueError: if there are none; the message names the option.
    """
    if _CERTIFICATE not in _read(file, option):
        raise ValueError(f"{option}: {file} has no certificate in PEM format")
    try:
        context.load_verify_locations(file)
    except ssl.SSLError:
        raise ValueError(f"{option}: a certificate in {file} is damaged") from None


def _read(file: Path, option: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"{option}: {file}: {error.strerror}") from None
