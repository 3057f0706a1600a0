/*
 * TLS of mbedTLS with a certificate of the client: HOST PORT AUTHORITY CERTIFICATE KEY. Sends what it reads from its input at once, and
 * writes what comes until the server ends the connection.
 */
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int must(const char *what, int result) {
  char text[256];
  if (result >= 0) return result;
  mbedtls_strerror(result, text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  exit(1);
}

int main(int argc, char **argv) {
  mbedtls_net_context net;
  mbedtls_ssl_context ssl;
  mbedtls_ssl_config config;
  mbedtls_x509_crt authority, certificate;
  mbedtls_pk_context key;
  mbedtls_entropy_context entropy;
  mbedtls_ctr_drbg_context random;
  unsigned char bytes[4096];
  int count;

  if (argc != 6) return 2;
  mbedtls_net_init(&net);
  mbedtls_ssl_init(&ssl);
  mbedtls_ssl_config_init(&config);
  mbedtls_x509_crt_init(&authority);
  mbedtls_x509_crt_init(&certificate);
  mbedtls_pk_init(&key);
  mbedtls_entropy_init(&entropy);
  mbedtls_ctr_drbg_init(&random);

  must("random", mbedtls_ctr_drbg_seed(&random, mbedtls_entropy_func, &entropy, NULL, 0));
  must("authority", mbedtls_x509_crt_parse_file(&authority, argv[3]));
  must("certificate", mbedtls_x509_crt_parse_file(&certificate, argv[4]));
#if MBEDTLS_VERSION_NUMBER >= 0x03000000
  must("key", mbedtls_pk_parse_keyfile(&key, argv[5], NULL, mbedtls_ctr_drbg_random, &random));
#else
  must("key", mbedtls_pk_parse_keyfile(&key, argv[5], NULL));
#endif
  must("defaults", mbedtls_ssl_config_defaults(&config, MBEDTLS_SSL_IS_CLIENT, MBEDTLS_SSL_TRANSPORT_STREAM,
                                               MBEDTLS_SSL_PRESET_DEFAULT));
  mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &random);
  mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_REQUIRED);
  mbedtls_ssl_conf_ca_chain(&config, &authority, NULL);
  must("own certificate", mbedtls_ssl_conf_own_cert(&config, &certificate, &key));
  must("setup", mbedtls_ssl_setup(&ssl, &config));
  must("name", mbedtls_ssl_set_hostname(&ssl, argv[1]));
  must("connect", mbedtls_net_connect(&net, argv[1], argv[2], MBEDTLS_NET_PROTO_TCP));
  mbedtls_ssl_set_bio(&ssl, &net, mbedtls_net_send, mbedtls_net_recv, NULL);
  must("handshake", mbedtls_ssl_handshake(&ssl));
  count = read(0, bytes, sizeof bytes);
  if (count > 0) must("send", mbedtls_ssl_write(&ssl, bytes, count));
  while ((count = mbedtls_ssl_read(&ssl, bytes, sizeof bytes)) > 0) write(1, bytes, count);
  return 0;
}
