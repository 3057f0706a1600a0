/** Transports of mail: a mail server, or files in the data folder when no server is configured (decision 55). */
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Transporter } from 'nodemailer'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { newId } from '#core/ids.ts'
import type { Sender } from './address.ts'
import type { Mail } from './compose.ts'
import { composeMail } from './compose.ts'

export type MailTransport = {
  /** Resolves when the mail was delivered to the transport. The signal aborts it. */
  deliver(mail: Mail, signal: AbortSignal): Promise<void>
  close(): void
}

/** Deadline of one step of the SMTP session. */
const SMTP_STEP_DEADLINE_MS = 15_000
/** Number of newest mail files that are kept, so that a test installation does not fill its disk. */
const MAX_MAIL_FILES = 1000

const composed = (mail: Mail, from: Sender, id: string) =>
  composeMail(mail, { from, now: new Date(), messageId: `${id}@${from.address.split('@')[1] ?? 'localhost'}` })

/**
 * `smtps:` uses TLS from the start. `smtp:` uses STARTTLS if the server offers it, and requires it with
 * `?requireTLS=true`. Throws `malformed` with the name of the setting, never its value.
 */
export function smtpTransport(url: string, from: Sender): MailTransport {
  const address = URL.canParse(url) ? new URL(url) : undefined
  if (address === undefined || !['smtp:', 'smtps:'].includes(address.protocol) || address.hostname === '')
    throw new ServiceError('malformed', 'SKEIN_SMTP_URL must be an address such as smtps://user:password@host:465')
  // Loaded with the first mail, because most processes send none.
  let smtp: Promise<Transporter> | undefined
  async function connected(): Promise<Transporter> {
    const { createTransport } = await import('nodemailer')
    return createTransport({
      url,
      connectionTimeout: SMTP_STEP_DEADLINE_MS,
      greetingTimeout: SMTP_STEP_DEADLINE_MS,
      socketTimeout: SMTP_STEP_DEADLINE_MS,
      dnsTimeout: SMTP_STEP_DEADLINE_MS,
    })
  }
  return {
    async deliver(mail, signal) {
      const envelope = { from: from.address, to: [mail.to] }
      smtp ??= connected()
      await (await smtp).sendMail({ envelope, raw: composed(mail, from, newId()), signal })
    },
    close: () => void smtp?.then((transport) => transport.close()),
  }
}

export function fileTransport(folder: string, from: Sender, logger: Logger): MailTransport {
  return {
    async deliver(mail) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const id = newId()
      // The name begins with the time, so that names sort by time.
      const name = `${new Date().toISOString().replaceAll(/[:.]/g, '-')}-${id}.eml`
      const file = join(folder, name)
      // Renamed when complete, so that readers of the folder find only complete mails.
      await writeFile(`${file}.part`, composed(mail, from, id), { flag: 'wx', mode: 0o600 })
      await rename(`${file}.part`, file)
      logger.info({ file }, 'wrote a mail to a file: SKEIN_SMTP_URL is not set')
      await removeOldest(folder)
    },
    close: () => undefined,
  }
}

async function removeOldest(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.eml')).toSorted()
  for (const name of names.slice(0, Math.max(0, names.length - MAX_MAIL_FILES)))
    await rm(join(folder, name), { force: true })
}
