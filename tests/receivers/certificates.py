"""What the houses that speak TLS are made of."""

import datetime as dt
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.receivers.street import Houses
from tests.sender.test_tls import Authority


def revoked(authority: Authority) -> tuple[ssl.SSLContext, str]:
    """A server whose certificate is revoked, and a file with its authority and the list that says so."""
    certificate = authority.ca.issue_cert("localhost")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(server)
    serial = x509.load_pem_x509_certificate(certificate.cert_chain_pems[0].bytes()).serial_number
    issuer = x509.load_pem_x509_certificate(authority.ca.cert_pem.bytes())
    key = serialization.load_pem_private_key(authority.ca.private_key_pem.bytes(), None)
    now = dt.datetime.now(dt.UTC)
    revocations = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now)
        .next_update(now + dt.timedelta(days=1))
        .add_revoked_certificate(x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build())
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    file = authority.folder / "revoked.pem"
    file.write_bytes(authority.ca.cert_pem.bytes() + revocations.public_bytes(serialization.Encoding.PEM))
    return server, str(file)


def secure(authority: Authority, revocations: str) -> Houses:
    """Houses that are spoken to by TLS."""
    certificate, key = authority.client()
    trusting = {"url": "https://localhost:{port}/hook", "tls": {"ca_file": authority.file}}
    listed = {**trusting, "tls": {"ca_file": revocations}}
    client = {**trusting, "tls": {"ca_file": authority.file, "client_certificate_file": certificate,
                                  "client_key_file": key}}  # fmt: skip
    names = ("fine", "expired", "self-signed", "wrong-host", "old", "plain", "silent", "anonymous")
    return {**dict.fromkeys(names, trusting), "client": client, "revoked": listed}
