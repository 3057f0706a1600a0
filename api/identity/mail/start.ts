/** Creates the mailer from the settings. */
import { isIP } from 'node:net'
import { join } from 'node:path'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { parseSender } from './address.ts'
import type { Sender } from './address.ts'
import { createMailer } from './mailer.ts'
import type { Mailer } from './mailer.ts'
import { fileTransport, smtpTransport } from './transport.ts'

export type MailConfig = { smtpUrl: Secret | undefined; mailFrom: string | undefined; publicUrl: string }

/** Name of the folder for mails in the data folder. */
const MAIL_FOLDER = 'mail'

/** Throws `malformed` with the name of an invalid setting. The first mail opens the connection. */
export function startMailer(config: MailConfig, dataDir: string, logger: Logger): Mailer {
  const from = senderOf(config)
  const { smtpUrl } = config
  const transport =
    smtpUrl === undefined
      ? fileTransport(join(dataDir, MAIL_FOLDER), from, logger)
      : smtpTransport(smtpUrl.reveal(), from)
  return createMailer({ transport, logger, hasServer: smtpUrl !== undefined })
}

function senderOf({ mailFrom, publicUrl }: MailConfig): Sender {
  if (mailFrom === undefined || mailFrom === '') {
    const { hostname } = new URL(publicUrl)
    const isAddress = isIP(hostname.replaceAll(/[[\]]/g, '')) !== 0
    return { name: 'Skein', address: `no-reply@${isAddress ? 'localhost' : hostname}` }
  }
  const sender = parseSender(mailFrom)
  if (sender === undefined)
    throw new ServiceError('malformed', 'SKEIN_MAIL_FROM must be an address such as Skein <no-reply@example.com>')
  return sender
}
