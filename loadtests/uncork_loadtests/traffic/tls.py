"""Which certificates a generator trusts and shows."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tls:
    """How to speak TLS with a server. All files are PEM."""

    ca: str | None = None
    """File of the certificates to trust; None: those that the system trusts."""
    insecure: bool = False
    """Trust any certificate, for any host."""
    cert: str | None = None
    """File of the client's certificate chain; None: the client has no certificate."""
    key: str | None = None
    """File of the key of `cert`; None: in the same file."""

    def context(self) -> ssl.SSLContext:
        """Read the files.

        Raises:
            ValueError: if one is missing or holds something else, or the fields contradict each other.
        """
        if self.insecure and self.ca is not None:
            raise ValueError("ca and insecure must not be given together: insecure trusts any certificate")
        if self.key is not None and self.cert is None:
            raise ValueError("to use key, cert must be given too")
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise ValueError(f"ca must be a PEM file of certificates, got {self.ca!r}: {error}") from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            try:
                # Without a password, OpenSSL would ask for that of an encrypted key at the terminal.
                context.load_cert_chain(self.cert, self.key, password="")
            except (OSError, ValueError) as error:
                raise ValueError(
                    "cert and key must be PEM files of a certificate chain and its key without a password, "
                    f"got {self.cert!r} and {self.key or self.cert!r}: {error}"
                ) from None
        return context
