"""TLS settings of a generator."""

import ssl
from dataclasses import dataclass

from uncork_dispatcher.simulator import SettingError


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
        """Load the files; raise SettingError if a file cannot be used, or fields contradict each other."""
        if self.insecure and self.ca is not None:
            raise SettingError("ca", "insecure", says=" must not be combined; give one of them")
        if self.key is not None and self.cert is None:
            raise SettingError("cert", says=" is missing; give the certificate chain of the key")
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            says = f" must be a PEM file of certificates, got {self.ca!r}: {error}"
            raise SettingError("ca", says=says) from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            try:
                # Without a password argument OpenSSL would prompt for that of an encrypted key.
                context.load_cert_chain(self.cert, self.key, password="")
            except (OSError, ValueError) as error:
                says = (
                    " must be PEM files of a certificate chain and its key without a password, "
                    f"got {self.cert!r} and {self.key or self.cert!r}: {error}"
                )
                raise SettingError("cert", "key", says=says) from None
        return context
