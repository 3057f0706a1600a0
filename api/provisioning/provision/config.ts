/** Settings of the provisioning service (contract 9.2). They override values of the layout file. */
import { optionalText, secret } from '#core/config/index.ts'

export const PROVISION_SETTINGS = {
  provisionLayout: optionalText(
    'SKEIN_PROVISION_LAYOUT',
    'TOML file with the clients and channels that /mapping creates; unset: one client with the channels control and data',
    { aliases: ['SKEIN_PROVISION_CONFIG_FILE'] },
  ),
  provisionUser: optionalText(
    'SKEIN_PROVISION_USER',
    'Username or email of the user for requests to /mapping without Authorization',
    { aliases: ['SKEIN_PROVISION_USERNAME', 'SKEIN_PROVISION_EMAIL'] },
  ),
  provisionPassword: secret('SKEIN_PROVISION_PASSWORD', 'Password of SKEIN_PROVISION_USER', {
    aliases: ['SKEIN_PROVISION_PASS'],
  }),
  provisionApiKey: secret('SKEIN_PROVISION_API_KEY', 'API key or personal access token instead of user and password'),
  provisionDomainId: optionalText(
    'SKEIN_PROVISION_DOMAIN_ID',
    'Domain of /mapping; defaults to the domain of the token, or the only domain of the user',
  ),
  provisionBootstrap: optionalText(
    'SKEIN_PROVISION_BS_CONFIG_PROVISIONING',
    'Whether clients with an external id get a bootstrap configuration: true or false',
    { defaultText: 'true' },
  ),
  provisionWhitelist: optionalText(
    'SKEIN_PROVISION_BS_AUTO_WHITELIST',
    'Whether that configuration is initially active: true or false',
    { defaultText: 'true' },
  ),
  provisionX509: optionalText(
    'SKEIN_PROVISION_X509_PROVISIONING',
    'Whether clients with an external id get a certificate: true or false',
    { defaultText: 'false' },
  ),
  provisionContent: optionalText(
    'SKEIN_PROVISION_BS_CONTENT',
    'Content of bootstrap configurations as a JSON object, if the layout has none',
  ),
  provisionCertTtl: optionalText(
    'SKEIN_PROVISION_CERTS_HOURS_VALID',
    'Lifetime of those certificates, a duration such as 2400h',
    { defaultText: '2400h' },
  ),
} as const
