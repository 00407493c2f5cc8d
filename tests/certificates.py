"""Certificates for `localhost` and 127.0.0.1: a self-signed one, and one of a private authority."""

import ssl
import subprocess

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def self_signed(folder):
    """(server side of TLS, the certificate's file)."""
    _openssl(
        folder,
        f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext {NAMES} -keyout key.pem -out cert.pem",
    )
    return _served(folder), folder / "cert.pem"


def of_an_authority(folder, names=NAMES):
    """(server side of TLS, the file of the authority that signed its certificate)."""
    (folder / "names").write_text(f"{names}\nbasicConstraints=CA:FALSE\n")
    _openssl(folder, "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=Acme -keyout ca.key -out ca.pem")
    _openssl(folder, "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out wish.pem")
    _openssl(
        folder, "x509 -req -days 2 -in wish.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out cert.pem"
    )
    return _served(folder), folder / "ca.pem"


def _openssl(folder, words):
    made = subprocess.run(["openssl", *words.split()], cwd=folder, capture_output=True)
    assert made.returncode == 0, made.stderr


def _served(folder):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return tls
