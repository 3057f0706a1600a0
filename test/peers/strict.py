"""Verifies with Python's ssl, strictly (RFC 5280) and against a revocation list: AUTHORITY LIST PORT CERTIFICATE...

Connects to the listener at the port of localhost, then takes each certificate, which is in one file with its key, as that of a
client. Prints a line for each: `accepted`, or the error.
"""
import socket
import ssl
import sys

authority, revoked, port, *certificates = sys.argv[1:]


def strict(purpose):
    context = ssl.create_default_context(purpose, cafile=authority)
    context.load_verify_locations(revoked)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_CRL_CHECK_LEAF
    return context


def verdict(verify):
    try:
        verify()
        return "accepted"
    except ssl.SSLCertVerificationError as error:
        return error.verify_message


def listener():
    plain = socket.create_connection(("localhost", int(port)), timeout=30)
    with strict(ssl.Purpose.SERVER_AUTH).wrap_socket(plain, server_hostname="localhost"):
        pass


def client(file):
    """A handshake in memory. The server has the certificate too: what it shows is not verified."""
    asking = strict(ssl.Purpose.CLIENT_AUTH)
    asking.verify_mode = ssl.CERT_REQUIRED
    asking.load_cert_chain(file)
    showing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    showing.check_hostname = False
    showing.verify_mode = ssl.CERT_NONE
    showing.load_cert_chain(file)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [showing.wrap_bio(down, up), asking.wrap_bio(up, down, server_side=True)]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass


print("listener", verdict(listener))
for name in certificates:
    print(name.split("/")[-1], verdict(lambda: client(name)))
