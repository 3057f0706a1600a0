/** Reads the mails that were sent without a mail server: files in the data folder. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { until } from '../harness/until.ts'

export type ReceivedMail = { file: string; to: string; subject: string; text: string }

/** Mails in the order in which they were written; to one address, or all of them. */
export function readMails(dataDir: string, to?: string): ReceivedMail[] {
  let names: string[]
  try {
    names = readdirSync(join(dataDir, 'mail'))
      .filter((name) => name.endsWith('.eml'))
      .toSorted()
  } catch {
    return []
  }
  const mails = names.map((name) => {
    const file = join(dataDir, 'mail', name)
    const message = readFileSync(file, 'utf8')
    const header = (key: string) => new RegExp(`^${key}: (.*)\r$`, 'm').exec(message)?.[1] ?? ''
    return {
      file,
      to: header('To'),
      subject: header('Subject'),
      text: message.slice(message.indexOf('\r\n\r\n') + 4),
    }
  })
  return mails.filter((mail) => to === undefined || mail.to === to)
}

/** The token of the `count`th mail to this address, waited for; the link stands alone on its line. */
export async function mailedToken(dataDir: string, to: string, count = 1): Promise<string> {
  const mail = await until(() => readMails(dataDir, to)[count - 1], `mail ${count} to ${to}`)
  const token = /^https?:\/\/\S+\?token=([A-Za-z0-9_-]{43})\r$/m.exec(mail.text)?.[1]
  if (token === undefined) throw new Error(`no link in ${mail.text}`)
  return token
}
