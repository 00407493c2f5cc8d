"""A certificate that its own key signed, for `localhost` and 127.0.0.1."""

import ssl
import subprocess


def self_signed(folder):
    """(server side of TLS, the certificate's file)."""
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    argv = ["openssl", *words.split(), "-keyout", "key.pem", "-out", "cert.pem"]
    made = subprocess.run(argv, cwd=folder, capture_output=True)
    assert made.returncode == 0, made.stderr
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return tls, folder / "cert.pem"
