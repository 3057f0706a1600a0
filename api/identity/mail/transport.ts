/** Where mails leave: a mail server, or files in the data folder while there is none (decision 55). */
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
  /** Resolves when the mail is out of our hands. The signal breaks it off. */
  deliver(mail: Mail, signal: AbortSignal): Promise<void>
  close(): void
}

/** A step of the conversation with the mail server may take so long. */
const SMTP_STEP_DEADLINE_MS = 15_000
/** Files of mail that are kept, the newest ones; a test installation must not fill its disk. */
const MAX_MAIL_FILES = 1000

const composed = (mail: Mail, from: Sender, id: string) =>
  composeMail(mail, { from, now: new Date(), messageId: `${id}@${from.address.split('@')[1] ?? 'localhost'}` })

/**
 * `smtps:` is TLS from the first byte; `smtp:` upgrades where the server offers it, and insists with `?requireTLS=true`.
 * Throws `malformed` naming the setting, never its value.
 */
export function smtpTransport(url: string, from: Sender): MailTransport {
  const address = URL.canParse(url) ? new URL(url) : undefined
  if (address === undefined || !['smtp:', 'smtps:'].includes(address.protocol) || address.hostname === '')
    throw new ServiceError('malformed', 'SKEIN_SMTP_URL must be an address such as smtps://user:password@host:465')
  // Loaded with the first mail: most starts send none.
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
      // The time first, so that names sort as they were written.
      const name = `${new Date().toISOString().replaceAll(/[:.]/g, '-')}-${id}.eml`
      const file = join(folder, name)
      // Whoever watches the folder finds whole mails only.
      await writeFile(`${file}.part`, composed(mail, from, id), { flag: 'wx', mode: 0o600 })
      await rename(`${file}.part`, file)
      logger.info({ file }, 'a mail was written to a file, because SKEIN_SMTP_URL is not set')
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
