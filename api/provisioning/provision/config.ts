/** Settings of the provisioning service (contract 9.2). What is set here wins over the same value in the layout file. */
import { optionalText, secret } from '#core/config/index.ts'

export const PROVISION_SETTINGS = {
  provisionLayout: optionalText(
    'SKEIN_PROVISION_LAYOUT',
    'TOML file with the clients and channels that /mapping makes; none: one client with the channels control and data',
    { aliases: ['SKEIN_PROVISION_CONFIG_FILE'] },
  ),
  provisionUser: optionalText(
    'SKEIN_PROVISION_USER',
    'Username or email in whose name /mapping without Authorization works',
    { aliases: ['SKEIN_PROVISION_USERNAME', 'SKEIN_PROVISION_EMAIL'] },
  ),
  provisionPassword: secret('SKEIN_PROVISION_PASSWORD', 'Password of SKEIN_PROVISION_USER', {
    aliases: ['SKEIN_PROVISION_PASS'],
  }),
  provisionApiKey: secret('SKEIN_PROVISION_API_KEY', 'API key or personal access token, instead of user and password'),
  provisionDomainId: optionalText(
    'SKEIN_PROVISION_DOMAIN_ID',
    'Domain in which /mapping works; none: that of the token, else the only one that the user reaches',
  ),
  provisionBootstrap: optionalText(
    'SKEIN_PROVISION_BS_CONFIG_PROVISIONING',
    'true or false: whether clients with an external id get a bootstrap configuration',
    { defaultText: 'true' },
  ),
  provisionWhitelist: optionalText(
    'SKEIN_PROVISION_BS_AUTO_WHITELIST',
    'true or false: whether that configuration is active at once',
    { defaultText: 'true' },
  ),
  provisionX509: optionalText(
    'SKEIN_PROVISION_X509_PROVISIONING',
    'true or false: whether clients with an external id get a certificate',
    { defaultText: 'false' },
  ),
  provisionContent: optionalText(
    'SKEIN_PROVISION_BS_CONTENT',
    'Content of bootstrap configurations where the layout names none, as a JSON object',
  ),
  provisionCertTtl: optionalText(
    'SKEIN_PROVISION_CERTS_HOURS_VALID',
    'Lifetime of those certificates, a duration such as 2400h',
    { defaultText: '2400h' },
  ),
} as const
