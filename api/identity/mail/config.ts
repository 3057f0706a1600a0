/** Settings of mail (contract section 15). */
import { httpUrl, optionalText, secret } from '#core/config/index.ts'

export const MAIL_SETTINGS = {
  smtpUrl: secret(
    'SKEIN_SMTP_URL',
    'Mail server, as smtps://user:password@host:465 or smtp://host:587; unset: mails are written to files in mail/ of the data folder',
  ),
  mailFrom: optionalText(
    'SKEIN_MAIL_FROM',
    'Sender of mails, as Name <address>; defaults to no-reply at the host of SKEIN_PUBLIC_URL',
  ),
  publicUrl: httpUrl(
    'SKEIN_PUBLIC_URL',
    'http://127.0.0.1:8080',
    'Public address of Skein: the base of links in mails',
    {
      aliases: ['SKEIN_URL'],
    },
  ),
} as const
