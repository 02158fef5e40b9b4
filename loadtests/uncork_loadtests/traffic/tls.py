"""TLS settings of a generator."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Certificates to trust and to present. All files are PEM."""

    ca: str | None = None
    """Certificates to trust; None: the system's."""
    insecure: bool = False
    """Trust any certificate, for any host."""
    cert: str | None = None
    """The client's certificate chain; None: no client certificate."""
    key: str | None = None
    """The key of `cert`; None: in the same file."""

    def context(self) -> ssl.SSLContext:
        """Load the files; raise ValueError if a file cannot be used, or the fields contradict each other."""
        if self.insecure and self.ca is not None:
            raise ValueError("ca and insecure must not be combined; give one of them")
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
                # Without a password argument OpenSSL would prompt for that of an encrypted key.
                context.load_cert_chain(self.cert, self.key, password="")
            except (OSError, ValueError) as error:
                raise ValueError(
                    "cert and key must be PEM files of a certificate chain and its key without a password, "
                    f"got {self.cert!r} and {self.key or self.cert!r}: {error}"
                ) from None
        return context
