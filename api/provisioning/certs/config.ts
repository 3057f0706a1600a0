/** Settings of certificates. */
import { list, optionalText } from '#core/config/index.ts'

export const CERTIFICATE_SETTINGS = {
  caCert: optionalText(
    'SKEIN_CA_CERT',
    'PEM file with the certificate authority of clients and its chain; unset: an authority that is created at the first start',
  ),
  caKey: optionalText('SKEIN_CA_KEY', 'PEM file with the key of SKEIN_CA_CERT'),
  tlsNames: list(
    'SKEIN_TLS_NAMES',
    [],
    'Names and addresses of this machine: without SKEIN_TLS_CERT every TCP listener gets a certificate for them from the authority; empty: TLS for MQTT only',
  ),
} as const
