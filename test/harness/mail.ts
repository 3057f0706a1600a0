/** Mails lie in the data folder where no SMTP server is set. */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

/** The text of the newest mail that contains the address. */
export function newestMail(dataDir: string, address: string): string | undefined {
  const folder = join(dataDir, 'mail')
  // The folder is made with the first mail.
  return (
    (existsSync(folder) ? readdirSync(folder) : [])
      // One that is being written has another name.
      .filter((file) => file.endsWith('.eml'))
      .toSorted()
      .toReversed()
      .map((file) => readFileSync(join(folder, file), 'utf8').replaceAll('=\r\n', '').replaceAll('=3D', '='))
      .find((text) => text.includes(address))
  )
}
